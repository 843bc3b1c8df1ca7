"""What a pyproject.toml requires: dependencies, extras and groups, and a clear word when they are not there."""

from __future__ import annotations

import pytest

from training_imgtool.base.errors import FieldError
from training_imgtool.model.requirement_files import read_dependencies

TEXT = """
[project]
name = "My_Project"
dependencies = ["pandas>=2", "six"]
[project.optional-dependencies]
Train = ["scipy", "my-project[plots]"]
plots = ["matplotlib", "my.project[train]"]
[dependency-groups]
test = ["pytest", {include-group = "Lint"}]
lint = ["ruff"]
loop = [{include-group = "loop"}]
"""


def read(text: str = TEXT, *, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> list[str]:
    return read_dependencies(text, "pyproject.toml", extras=extras, groups=groups).splitlines()


def test_dependencies_extras_and_groups() -> None:
    assert read() == ["pandas>=2", "six"]
    assert read(extras=("train",)) == ["pandas>=2", "six", "scipy", "matplotlib"]
    assert read(groups=("test",)) == ["pandas>=2", "six", "pytest", "ruff"]
    assert read("[dependency-groups]\na = ['x']\n", groups=("a",)) == ["x"]


@pytest.mark.parametrize(
    ("text", "extras", "groups", "message", "hint"),
    [
        (TEXT, ("gpu",), (), "no extra gpu", "it has plots, train"),
        (TEXT, (), ("docs",), "no dependency group docs", "it has lint, loop, test"),
        (TEXT, (), ("loop",), "includes itself", ""),
        ("[tool.black]\nline-length = 99\n", (), (), r"neither a \[project\] nor", "requirements.txt"),
        ("[project]\ndependencies = 'pandas'\n", (), (), "expected a list", ""),
        ("[project]\ndependencies = [7]\n", (), (), "expected a list", ""),
        ("[project", (), (), "not TOML", ""),
    ],
)
def test_what_is_refused(text: str, extras: tuple[str, ...], groups: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(FieldError, match=message) as caught:
        read(text, extras=extras, groups=groups)
    assert hint in (caught.value.hint or "")


SOURCES = """
[project]
name = "x"
dependencies = ["a[train]>=1", "b", "c ; python_version > '3.8'", "d", "e"]
[tool.uv.sources]
a = { path = "libs/a", editable = true }
B = { git = "https://host/b.git", tag = "v1", subdirectory = "py" }
c = { git = "https://host/c" }
d = { path = "../wheels/d-1.0-py3-none-any.whl" }
e = { index = "company" }
"""


def test_the_sources_of_uv_say_where_a_package_is() -> None:
    assert read(SOURCES) == [
        "a[train] @ ./libs/a",
        "b @ git+https://host/b.git@v1#subdirectory=py",
        'c @ git+https://host/c ; python_version > "3.8"',
        "../wheels/d-1.0-py3-none-any.whl",
        "e",
    ]
    for source in ("{ workspace = true }", '{ url = "https://host/a.whl" }', '[{ path = "a" }]'):
        with pytest.raises(FieldError, match=r"tool\.uv\.sources\.a: imgtool does not follow") as caught:
            read(f'[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {source}\n')
        assert "{ path" in (caught.value.hint or "")


UV = """
[project]
name = "x"
dependencies = ["a"]
[tool.uv]
extra-index-url = ["https://two.example.com/simple"]
find-links = ["./wheels"]
[[tool.uv.index]]
url = "https://one.example.com/simple"
default = true
[[tool.uv.index]]
url = "https://pinned.example.com/simple"
explicit = true
"""


def test_the_indexes_of_uv_count_and_its_versions_are_refused() -> None:
    """They are part of the text that the lock depends on."""
    assert read(UV) == [
        "--index-url https://one.example.com/simple",
        "--extra-index-url https://two.example.com/simple",
        "--find-links ./wheels",
        "a",
    ]
    for line in ('resolution = "lowest"', 'override-dependencies = ["a==1"]', 'pip = { exclude-newer = "2024-01-01" }'):
        with pytest.raises(FieldError, match=r"imgtool does not read tool\.uv\.") as caught:
            read(UV.replace("[tool.uv]\n", f"[tool.uv]\n{line}\n"))
        assert "-c FILE" in (caught.value.hint or "")
