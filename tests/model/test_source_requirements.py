"""Lines that name code: folders, archives and Git repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.base.errors import FieldError
from training_imgtool.model.requirement_files import read_dependencies, read_requirement_files
from training_imgtool.model.requirements import find_unlockable_lines, list_code
from training_imgtool.model.source_requirements import GitPlace, parse_git, parse_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("line", "origin", "name", "extras", "marker"),
    [
        ("-e .", "sub", None, (), ""),
        ("-e ./libs/x[train, dev]", "sub/libs/x", None, ("train", "dev"), ""),
        ("--editable=libs/x/", "sub/libs/x", None, (), ""),
        ("./libs/x ; python_version > '3.8'", "sub/libs/x", None, (), "python_version > '3.8'"),
        ("../shared", "shared", None, (), ""),
        ("X @ file:./libs/x", "sub/libs/x", "X", (), ""),
        ("x[e] @ ./libs/x", "sub/libs/x", "x", ("e",), ""),
        ("./x-1.0.tar.gz", "sub/x-1.0.tar.gz", None, (), ""),
        (f"git+https://host/p.git@{COMMIT}", f"git+https://host/p.git@{COMMIT}", None, (), ""),
        (
            "-e git+https://host/p@v1#egg=foo[bar]&subdirectory=a/b",
            "git+https://host/p@v1#subdirectory=a/b",
            "foo",
            ("bar",),
            "",
        ),
        ("x @ git+ssh://git@host/p.git", "git+ssh://git@host/p.git", "x", (), ""),
    ],
)
def test_lines_that_name_code(line: str, origin: str, name: str | None, extras: tuple[str, ...], marker: str) -> None:
    parsed = parse_source("sub/r.txt", "sub/r.txt:3", line)
    assert parsed is not None
    assert (parsed.origin, parsed.name, parsed.extras, parsed.marker) == (origin, name, extras, marker)


@pytest.mark.parametrize(
    "line",
    [
        "numpy>=1",
        "numpy [x] ; a",
        "x @ https://host/z.whl",
        "./w/x-1.0-py3-none-any.whl",
        "/abs/x",
        "git+git@host:o/r",
        "git+https://host/p@-option",
        "git+https://host/p#subdirectory=../x",
        "git+ext::sh -c x",
        "-r other.txt",
        "--find-links ./wheels",
    ],
)
def test_lines_that_name_none(line: str) -> None:
    assert parse_source("r.txt", "r.txt:1", line) is None


def test_a_git_place() -> None:
    assert parse_git("git+ssh://git@host:22/o/r.git@release/1.x#subdirectory=a") == GitPlace(
        "ssh://git@host:22/o/r.git", "release/1.x", "a"
    )


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("git+https://user:secret@host/p.git@main", "change the password"),
        ("git+https://T0KEN@host/p.git@main", "a credential helper"),
        ("x @ git+http://${T0KEN}@host/p.git", "a credential helper"),
        ("git+git@host:o/r", "git+https://HOST/PATH@COMMIT"),
        ("hg+https://host/p", "./wheels/NAME.whl"),
        ("-e /home/me/x", "./FOLDER"),
        ("x @ file:///home/me/x", "./FOLDER"),
        ("https://host/z.whl", "./FILE"),
        ("../w/z-1.0-py3-none-any.whl", "copy the wheel"),
        ("-r https://host/r.txt", "download the file"),
        ("-c https://host/c.txt", "download the file"),
        ("--constraint='http://host/c.txt'", "download the file"),
        ("--requirement=https://host/r.txt", "download the file"),
        ("--no-binary six", "remove this option"),
    ],
)
def test_lines_that_no_lock_can_hold_have_a_cure(line: str, cure: str) -> None:
    [(where, _, hint)] = find_unlockable_lines((("r.txt", f"numpy\n{line}\n"),))
    assert where == "r.txt:2"
    assert cure in hint


@pytest.mark.parametrize(
    "line", ["-c c.txt", "--no-binary :none:", "--index-url https://u:${TOKEN}@host/simple", "-r r.txt"]
)
def test_options_that_a_lock_can_hold(line: str) -> None:
    assert find_unlockable_lines((("r.txt", f"{line}\n"),)) == ()


@pytest.mark.parametrize(
    "text",
    [
        '[build-system]\nrequires = ["poetry-core"]\n[tool.poetry.dependencies]\nnumpy = "*"\n',
        '[project]\nname = "x"\ndynamic = ["version", "dependencies"]\n',
    ],
)
def test_a_project_whose_build_computes_its_dependencies_stands_for_itself(text: str) -> None:
    assert read_dependencies(text, "pyproject.toml", extras=(), groups=()) == "-e .\n"
    assert read_dependencies(text, "pyproject.toml", extras=("a", "b"), groups=()) == "-e .[a,b]\n"


def test_a_setup_py_names_its_project(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/setup.py").write_text("")
    texts = read_requirement_files(tmp_path, "lib/setup.py", extras=("dev",))
    [requirement] = list_code(texts)
    assert (requirement.origin, requirement.extras) == ("lib", ("dev",))
    with pytest.raises(FieldError, match=r"setup\.cfg: No such file"):
        read_requirement_files(tmp_path, "setup.cfg")
