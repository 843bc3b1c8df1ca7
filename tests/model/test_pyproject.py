"""What a pyproject.toml requires: dependencies, extras and groups, and a clear word when they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.base.errors import FieldError
from training_imgtool.model.load import load
from training_imgtool.model.requirement_files import read_dependencies, read_locked, read_requirement_files

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
e = [{ index = "company", marker = "sys_platform == 'linux'" }, { index = "other", marker = "sys_platform == 'win32'" }]
[[tool.uv.index]]
name = "company"
url = "https://company.example.com/simple"
explicit = true
[[tool.uv.index]]
name = "other"
url = "https://other.example.com/simple"
"""
POETRY = """
[tool.poetry.dependencies]
mine = { version = "^1", source = "company", optional = OPTIONAL }
usual = { version = "^2", source = "PyPI" }
[[tool.poetry.source]]
name = "company"
url = "https://company.example.com/simple"
priority = "explicit"
[build-system]
requires = ["poetry-core"]
"""


def test_the_sources_of_uv_say_where_a_package_is() -> None:
    assert read(SOURCES) == [
        "--extra-index-url https://other.example.com/simple",
        "# index of e https://company.example.com/simple ; sys_platform == 'linux'",
        "# index of e https://other.example.com/simple ; sys_platform == 'win32'",
        "a[train] @ ./libs/a",
        "b @ git+https://host/b.git@v1#subdirectory=py",
        'c @ git+https://host/c ; python_version > "3.8"',
        "../wheels/d-1.0-py3-none-any.whl",
        "e",
    ]
    for source in ("{ workspace = true }", '{ url = "https://host/a.whl" }', '[{ path = "a" }]'):
        with pytest.raises(FieldError, match=r"tool\.uv\.sources\.a: imgtool does not support") as caught:
            read(f'[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {source}\n')
        assert "{ path" in (caught.value.hint or "")


def test_a_package_that_a_project_binds_to_an_index_is_bound_or_refused_by_its_name() -> None:
    assert read(POETRY.replace("OPTIONAL", "false")) == ["# index of mine https://company.example.com/simple", "-e ."]
    pdm = POETRY.replace("OPTIONAL", "false") + '[[tool.pdm.source]]\nname = "team"\ninclude_packages = ["ours-*"]\n'
    for text, message in (
        (POETRY.replace("OPTIONAL", "true"), "cannot follow mine, which is optional, to its source"),
        (POETRY.replace('name = "company"', 'name = "other"'), "cannot follow mine to the index company"),
        (SOURCES.replace('name = "company"', 'name = "theirs"'), "cannot follow e to the index company"),
        (SOURCES.replace("marker = \"sys_platform == 'linux'\"", 'extra = "cpu"'), "cannot follow e to the index"),
        (pdm, r"cannot follow ours-\* to PDM's source team"),
    ):
        with pytest.raises(FieldError, match=message):
            read(text.replace("OPTIONAL", "false"))


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


SCRIPT = """\
#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "pandas>=2",
#
#   "lib",
# ]
# [tool.uv.sources]
# lib = { path = "libs/lib" }
# ///
import pandas
"""
PYLOCK = """
lock-version = "1.0"
requires-python = ">=3.10"
[[packages]]
name = "pandas"
version = "2.2.3"
marker = "sys_platform == 'linux'"
sdist = { url = "https://host/p.tar.gz", hashes = { sha256 = "bb" } }
wheels = [{ url = "https://host/p.whl", hashes = { sha256 = "aa" } }]
[[packages]]
name = "tool"
vcs = { type = "git", url = "https://host/tool.git", commit-id = "abc", subdirectory = "py" }
[[packages]]
name = "lib"
directory = { path = "libs/lib", editable = true }
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("train.py", SCRIPT, ["# requires-python >=3.10", "pandas>=2", "lib @ ./libs/lib"]),
        (
            "pylock.train.toml",
            PYLOCK,
            [
                "# requires-python >=3.10",
                "pandas==2.2.3 ; sys_platform == 'linux' --hash=sha256:aa --hash=sha256:bb",
                "tool @ git+https://host/tool.git@abc#subdirectory=py",
                "lib @ ./libs/lib",
            ],
        ),
    ],
)
def test_a_program_and_a_pylock_say_what_they_require(name: str, text: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    ((shown, found),) = read_requirement_files(tmp_path, name)
    assert (shown, found.splitlines()) == (name, lines)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train.py", "import pandas\n", "has no `# /// script` block"),
        ("train.py", SCRIPT + SCRIPT, "has 2 `# /// script` blocks"),
        ("train.py", "# /// script\n# dependencies = [\n# ///\n", "not TOML"),
        ("train.py", '# /// script\n# dependencies = "x"\n# ///\n', "expected a list"),
        ("pylock.toml", "packages = 7\n", "is not a valid lock file"),
        ("pylock.toml", '[[packages]]\nname = "x"\narchive = { url = "https://x" }\n', "x has no version, path or"),
        ("pylock.toml", "[[packages]]\nname = 'x'\nversion = '1'\nmarker = \"'a' in extras\"\n", "an extra or a group"),
    ],
)
def test_what_of_them_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FieldError, match=message):
        read_requirement_files(tmp_path, name)


def test_a_member_of_a_workspace_follows_its_sources_and_its_lock(tmp_path: Path) -> None:
    shared = '[tool.uv.sources]\nlib = { workspace = true }\nfar = { path = "vendor/far" }\n'
    (tmp_path / "pyproject.toml").write_text(f'[tool.uv.workspace]\nmembers = ["packages/*"]\n{shared}')
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "six"\nversion = "1.16.0"\n')
    for name, needs in (("app", ["lib", "far", "six"]), ("lib", [])):
        (tmp_path / "packages" / name).mkdir(parents=True)
        text = f'[project]\nname = "{name}"\ndependencies = {needs}\n'
        (tmp_path / "packages" / name / "pyproject.toml").write_text(text)
    app = tmp_path / "packages/app"
    ((_, found),) = read_requirement_files(app, "pyproject.toml")
    assert found.splitlines() == ["lib @ ../lib", "far @ ../../vendor/far", "six"]
    (app / "image.yaml").write_text(
        'name: x\ntensorflow: "2.15.1"\nrequirements: pyproject.toml\ntrainer: {source: ., module: a}\n'
        "roles: {master: {machine: n1-standard-4}}\n"
    )
    (app / "a.py").touch()
    assert read_locked(load(app / "image.yaml")) == (("uv.lock", "six==1.16.0\n"),)
