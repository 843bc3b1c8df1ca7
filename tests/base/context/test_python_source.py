"""Sources in encodings that hide line breaks and names from whoever reads the bytes."""

from __future__ import annotations

import pytest

from training_imgtool.base.context.python_source import read_source


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"# coding: utf-7\nimport sys+AAo-sys.path+AAo-'a'+AAo-'b'+AAo-'c'\n", 3),
        (b"# coding: utf-7\nimport sys\nsys+AC4-path\n", 3),
        (b"# coding: unicode_escape\nimport sys\\nsys.path\\n'a'\\n'b'\n", 3),
        (b"# coding: latin-1\nimport sys\n'\xe9'; sys.path\n# \xe9\n", 3),
        (b"# coding: utf-8\nimport sys\n'a'\nsys.path # \xc3\xa9\n", 4),
        (b"# coding: utf-7\n'+AAo-sys.path+AAo-'\n", None),
    ],
)
def test_a_file_in_an_odd_encoding(text: bytes, line: int | None) -> None:
    try:
        source = read_source(text, "trainer/task.py", (3, 11))
    except (SyntaxError, ValueError):
        return
    assert source.opens_up_at == line
