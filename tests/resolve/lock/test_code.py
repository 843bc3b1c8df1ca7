"""Requirements that name code: folders, source archives and Git commits become wheels of the lock."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.resolve.lock.place import Events, Place, add
from tests.resolve.lock.test_archives import SPEC, locked
from tests.resolve.wheels.archives import source_archive, source_files
from tests.servers.git_server import commit, serving_git
from training_imgtool.base.errors import FieldError
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.lock.carry_over import Renewal
from training_imgtool.resolve.lock.lockfile import dump_lock, lock_inputs
from training_imgtool.resolve.lock.update import make_lock
from training_imgtool.resolve.wheels.interpreters import find_interpreter
from training_imgtool.resolve.wheels.sources.folder import CodeFolder

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not on this machine")


@pytest.fixture
def code(place: Place) -> Place:
    """A place whose index has `dep` and `extra`, which the code requires."""
    if find_interpreter("3.11", place.settings.environ) is None:
        pytest.skip("Python 3.11 is not on this machine")
    add(place.index, "dep", "1.0")
    add(place.index, "extra", "1.0")
    return place


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def private(requires: tuple[str, ...] = ("dep",), version: str = "1.5", body: str = "pass") -> dict[str, str]:
    return source_files("private", version, requires=requires, body=body)


def test_a_folder_becomes_a_wheel_with_its_requirements(code: Place) -> None:
    write(code.folder / "libs/private", private(("dep", "extra; extra == 'more'")))
    wheels, notes = locked(code, requirements="-e ./libs/private[more]\n")
    source = wheels["private"].source
    assert source is not None
    assert (source.origin, source.commit) == ("libs/private", "")
    assert {"private", "dep", "extra"} == wheels.keys() - {"dumb-init", "numpy", "setuptools", "tensorflow-cpu"}
    assert notes == []


def test_the_lock_follows_the_files_and_nothing_else(code: Place) -> None:
    folder = code.folder / "libs/private"
    write(folder, private())
    spec_file = code.spec(SPEC, "./libs/private\n")
    lock = code.lock(spec_file)
    assert lock_inputs(spec_file) == lock.inputs
    write(folder, {"__pycache__/x.pyc": "x", "build/lib/x.py": "", "private.egg-info/PKG-INFO": "", ".git/HEAD": ""})
    (folder / "backend.py").touch()
    assert lock_inputs(spec_file) == lock.inputs
    assert code.lock(spec_file) == lock
    write(folder, private(version="1.6"))
    assert lock_inputs(spec_file) != lock.inputs


@pytest.mark.parametrize("smart", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_branch_is_locked_at_its_commit(code: Place, tmp_path: Path, *, smart: bool) -> None:
    repository = tmp_path / "served/private"
    first = commit(repository, {f"lib/{name}": text for name, text in private().items()})
    with serving_git(tmp_path / "served", smart=smart) as url:
        origin = f"git+{url}/private/.git@main#subdirectory=lib"
        spec_file = code.spec(SPEC, f"private @ {origin}\n")
        lock = code.lock(spec_file)
        [wheel] = [wheel for wheel in lock.variants[0].wheels if wheel.name == "private"]
        assert wheel.source is not None
        assert (wheel.source.origin, wheel.source.commit, wheel.version) == (origin, first, "1.5")
        second = commit(repository, {f"lib/{name}": text for name, text in private(version="1.6").items()})

        def renewed(renewal: Renewal) -> Wheel:
            carried = renewal.carry_over(lock, "linux/amd64")
            arguments = (code.matrix, lambda _: "sha256:" + "a" * 64, code.settings, Events())
            new = make_lock(spec_file, *arguments, carried_over=carried)
            return next(wheel for wheel in new.variants[0].wheels if wheel.name == "private")

        assert renewed(Renewal()) == wheel
        for renewal in (Renewal(everything=True), Renewal(packages=frozenset({"private"}))):
            newer = renewed(renewal)
            assert newer.source is not None
            assert (newer.version, newer.source.commit) == ("1.6", second)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("git+{url}/private@nowhere", "has no branch and no tag nowhere", "a full commit"),
        ("git+{url}/private@" + "0" * 40, f"has no commit {'0' * 40}", "push the commit"),
        ("git+{url}/private@main#subdirectory=no/such", "has no folder no/such", ""),
        ("git+{url}/nothing@main", "not found", ""),
        ("other @ git+{url}/private@main", "is private, not other", "write private"),
        ("./libs/none", "there is no such folder", ""),
        ("./trainer", "no pyproject.toml, no setup.py", "include"),
        ("../outside", "outside the repository", "publish it"),
        ("./libs/folder.tar.gz", "Is a directory", ""),
        ("./libs/native", "it needs a compiler", "pip wheel --no-deps -w wheels libs/native"),
    ],
)
def test_what_cannot_be_locked_is_named_with_its_cure(
    code: Place, tmp_path: Path, line: str, message: str, hint: str
) -> None:
    commit(tmp_path / "served/private", private())
    (code.folder / "libs/folder.tar.gz").mkdir(parents=True)
    write(code.folder / "libs/native", private(body="raise SystemExit(\"command 'gcc' failed\")"))
    with serving_git(tmp_path / "served") as url:
        spec_file = code.spec(
            SPEC.replace("roles", "trainer: trainer/task.py\nroles"), f"numpy\n{line.format(url=url)}\n"
        )
        with pytest.raises(FieldError, match=message) as caught:
            code.lock(spec_file)
        if hint.startswith("write "):
            cured = line.replace("other", hint.removeprefix("write ")).format(url=url)
            (code.folder / "requirements.txt").write_text(f"numpy\n{cured}\n")
            assert code.lock(spec_file)
    assert "requirements.txt:2: " in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_local_archive_and_a_pyproject(code: Place) -> None:
    (code.folder / "vendor").mkdir()
    (code.folder / "vendor/private-1.5.tar.gz").write_bytes(source_archive("private", "1.5", requires=("dep",)))
    (code.folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["private @ ./vendor/private-1.5.tar.gz"]\n'
    )
    code.spec(SPEC)
    (code.folder / "image.yaml").write_text(f"{SPEC}requirements: pyproject.toml\n")
    spec_file = code.spec(f"{SPEC}requirements: pyproject.toml\n")
    wheels = {wheel.name: wheel for wheel in code.lock(spec_file).variants[0].wheels}
    assert wheels["private"].source is not None
    assert wheels["private"].source.origin == "vendor/private-1.5.tar.gz"
    assert "dep" in wheels


def test_the_trainers_own_project_gives_its_requirements_alone(code: Place) -> None:
    tagged = "os.environ['SETUPTOOLS_SCM_PRETEND_VERSION']"  # which Git tags say, elsewhere
    write(code.folder, source_files("own", "0.1", requires=("dep", "extra; extra == 'more'"), body=tagged))
    write(code.folder, {"own/__init__.py": "", "own/task.py": "", "own/data.bin": "x" * (2 << 20)})
    write(code.folder, {"setup.py": "open('deps/base.txt')", "deps/base.txt": ""})
    spec_file = code.spec(f"{SPEC}trainer: own\n", "-e .[more]\n")
    lock = code.lock(spec_file)
    names = {wheel.name for wheel in lock.variants[0].wheels}
    assert {"dep", "extra"} <= names
    assert "own" not in names
    write(code.folder, {"own/task.py": "changed = 1"})
    ended = (code.folder / "pyproject.toml").read_bytes().replace(b"\n", b"\r\n")
    (code.folder / "pyproject.toml").write_bytes(ended)
    assert lock_inputs(spec_file) == lock.inputs
    for name in ("deps/base.txt", "setup.py"):  # setup.py names the first
        write(code.folder, {name: "changed"})
        changed = lock_inputs(spec_file)
        assert changed != lock.inputs
        lock = replace(lock, inputs=changed)


def test_no_package_is_left_out_of_a_folder_for_its_name(code: Place) -> None:
    """Only what tools leave behind is: `.mypy_cache`, and `build` without code of its own."""
    folder = code.folder / "libs/private"
    names = ("private/feature_cache/__init__.py", "private/lru_cache", "dist/__init__.py", "private/build/__init__.py")
    write(folder, {**private(), **dict.fromkeys((*names, ".mypy_cache/x", "build/lib/y.py"), "")})
    CodeFolder(code.folder, "libs/private", "image.yaml").copy(code.folder / "copied")
    copied = {
        path.relative_to(code.folder / "copied").as_posix()
        for path in (code.folder / "copied").rglob("*")
        if path.is_file()
    }
    assert copied == {*names, *private()}


def test_a_script_beside_a_package_of_its_project_gets_the_package(code: Place) -> None:
    write(code.folder, {**source_files("own", "0.1", requires=("dep",)), "own/__init__.py": "", "scripts/train.py": ""})
    spec_file = code.spec(f"{SPEC}trainer: scripts/train.py\n", "-e .\n")
    lock = code.lock(spec_file)
    assert {"own", "dep"} <= {wheel.name for wheel in lock.variants[0].wheels}
    (code.folder / "image.lock").write_text(dump_lock(lock))  # imgtool's own files are no part of the package
    (code.folder / "job").mkdir()
    (code.folder / "job/.imgtool-job").touch()
    assert lock_inputs(spec_file) == lock.inputs
    write(code.folder, {"own/__init__.py": "x = 1"})
    assert lock_inputs(spec_file) != lock.inputs
