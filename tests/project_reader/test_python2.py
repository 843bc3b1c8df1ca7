from __future__ import annotations

import ast
from pathlib import Path

import pytest

from imgtool_project_reader.python2 import parse_python_2
from imgtool_project_reader.source import read_source
from training_imgtool.app.init import write_starter

PROGRAM = """import cPickle as pickle
import tensorflow as tf


def load(path, (low, high)):
    try:
        return pickle.load(open(path))
    except IOError, error:
        print "no %s (%s)" % (path,
                              error)
        raise ValueError, "no data"


print >>log, "begins", \\
    words
if 1 <> 2: print `load`
words = sorted({}, key=lambda (word, count): -count)
exec "x = 1" in {}
model.fit_generator(load("a", (1, 2)))
"""


def test_a_file_of_python_2_is_read_with_its_lines() -> None:
    source = read_source(PROGRAM, "train.py")
    assert source is not None
    assert [(item.module, item.line) for item in source.imports] == [("cPickle", 1), ("tensorflow", 2)]
    assert source.trains == {"fit_generator"}
    assert source.python2_line == 5
    tree = parse_python_2(PROGRAM)
    assert tree is not None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "fit_generator"]
    assert [call.lineno for call in calls] == [19]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import os\n\nimport Queue\n", 3),
        ("from itertools import count\nfrom itertools import izip\n", 2),
        ("try:\n    import cPickle as pickle\nexcept ImportError:\n    import pickle\n", 0),
        ("from . import Queue\nprint(3)\n", 0),
        ("if x:\n\tprint 'a'\n        print 'b'\n", 2),
    ],
)
def test_what_only_python_2_has(text: str, line: int) -> None:
    source = read_source(text, "a.py")
    assert source is not None
    assert source.python2_line == line


def test_numbers_and_texts_of_python_2() -> None:
    tree = parse_python_2('words = [ur"\\d", 0L, 017, 0xffL]\n')
    assert tree is not None
    assert ast.unparse(tree) == "words = ['\\\\d', 0, 15, 255]"


@pytest.mark.parametrize("text", ["model.fit(\n", "print 'a'\ndef (:\n", "{% raw %}\n"])
def test_what_is_no_python_at_all(text: str) -> None:
    assert read_source(text, "a.py") is None


def test_a_program_of_python_2_is_proposed_and_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("print 1\n")
    written = write_starter(tmp_path)
    assert "train.py:5: Python 2, which no image has; 2to3 converts most of it" in written.notes
    text = (tmp_path / "image.yaml").read_text()
    assert "\ntrainer: train.py" in text
    assert "cPickle" not in text
    (tmp_path / "train.py").write_text(f"import helper\n{PROGRAM}")
    notes = write_starter(tmp_path).notes
    assert "train.py:6 and 1 more files: Python 2, which no image has; 2to3 converts most of it" in notes
