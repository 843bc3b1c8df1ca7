"""An import that loads a shared library which the image lacks is refused, with the Debian package that has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from imgtool_debian_layers import BaseSystem, Node
from imgtool_project_reader.packages import Concessions
from tests import plans
from tests.debian_layers.packages import system
from tests.faults.project import SPEC, Project
from tests.oci.direct.wheels import make_wheel
from tests.resolve.wheels.libraries import make_library
from training_imgtool.app.init_lock import add_libraries
from training_imgtool.base.errors import FieldListError, TemporaryError
from training_imgtool.base.progress import Event, Note
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.make.trainer_check import check_trainer
from training_imgtool.model.load import load
from training_imgtool.model.lock import DebianPackage, LockedDebian
from training_imgtool.oci.machine import Machine
from training_imgtool.plan import debian_stage
from training_imgtool.plan.inputs import prepare
from training_imgtool.plan.project_files import SpecChoice
from training_imgtool.resolve.wheels.libraries import WheelLibraries
from training_imgtool.resolve.wheels.store import WheelStore

GL = "libGL.so.1"
NEEDS = "needs libGL.so.1, which neither the base nor a package of the image has"
RELEASE = {"/usr/lib/os-release": 'PRETTY_NAME="Debian"\nVERSION_ID="12"\nID=debian\n'}


class World:
    """A project whose lock has one wheel more, on a base that a test chooses."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project = Project(root)
        self.settings: Settings = from_environment(self.project.env)
        self.base: BaseSystem | None = system(RELEASE)
        self.files = {"view/__init__.py": b"from . import _gl\n", "view/_gl.abi3.so": make_library(needed=[GL])}
        self.debian: LockedDebian | None = None
        self.needed: tuple[str, ...] | None = None  # as the lock has it
        self.reads = 0
        monkeypatch.setattr(debian_stage, "read_base_system", self._read)

    def _read(self, *_: object) -> BaseSystem:
        self.reads += 1
        if self.base is None:
            raise TemporaryError("no answer")
        return self.base

    def check(self, code: str) -> list[str]:
        """The notes of a check."""
        self.project.write("trainer/task.py", code)
        path = make_wheel(self.project.root, "view", self.files)
        with path.open("rb") as stream:
            wheel = WheelStore(self.settings).put(path.name, stream)
        inputs = prepare(load(self.project.folder / "image.yaml"), Machine.open(self.settings), SpecChoice(locked=True))
        before = inputs.images[0].locked
        wheels = (*before.wheels, wheel)
        locked = replace(before, wheels=wheels, debian=self.debian, needed_libraries=self.needed)
        changed = plans.with_locked(inputs, locked)
        texts: list[str] = []

        def progress(event: Event) -> None:
            texts.extend([event.text] if isinstance(event, Note) else [])

        check_trainer(changed, Machine.open(self.settings, progress))
        return texts

    def refused(self, code: str) -> FieldListError:
        """The errors of a check."""
        with pytest.raises(FieldListError) as caught:
            self.check(code)
        return caught.value


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_the_error_names_place_module_library_and_package(world: World) -> None:
    error = world.refused("import os\nimport view\nimport view\n")
    assert str(error) == f"trainer/task.py:2:1: view {NEEDS}\n  system_packages: [libgl1]; --no-check skips this check"
    added = add_libraries(error, Concessions())
    assert added == Concessions(system={"libgl1": f"view {NEEDS}"})
    assert add_libraries(error, added) is None
    assert add_libraries(None, added) is None


def test_a_package_that_the_program_imports_through_another(world: World) -> None:
    world.files |= {"user/__init__.py": b"", "user/deep.py": b"import view\n"}
    world.files["view/_gl.abi3.so"] = make_library(needed=[GL, "libgthread-2.0.so.0", "libnobodyknows.so.1"])
    world.base = system({"/usr/lib/os-release": "ID=ubuntu\nVERSION_ID=24.04\n"})
    (error,) = world.refused("from user import deep\n").errors
    assert str(error).startswith(
        "trainer/task.py:1:1: user imports view, which needs libGL.so.1 and libgthread-2.0.so.0"
    )
    assert str(error.hint).startswith("system_packages: [libgl1, libglib2.0-0t64]; ")


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    import view\nexcept ImportError:\n    view = None\n",
        "def late():\n    import view\n",
        "import sys\nsys.path.append('/opt/view')\nimport view\n",
    ],
)
def test_what_may_never_run_is_a_note(world: World, code: str) -> None:
    line = code[: code.index("import view")].count("\n") + 1
    assert world.check(code) == [f"trainer/task.py:{line}:1: view {NEEDS}"]
    assert world.check(code) == [f"trainer/task.py:{line}:1: view {NEEDS}"], "also from the cache"
    assert world.reads == 1


def test_what_the_program_does_not_reach_reads_no_base(world: World) -> None:
    world.files["view/__init__.py"] = b"def draw():\n    from . import _gl\n"
    assert world.check("import view, numpy\n") == []
    assert world.reads == 0


def test_a_library_of_the_base_of_a_package_or_of_the_program(world: World) -> None:
    world.base = system(RELEASE, {"/usr/lib/x86_64-linux-gnu/libGL.so.1": Node("l", target="libGL.so.1.7.0")})
    assert world.check("import view\n") == []
    world.base = system(RELEASE)
    package = DebianPackage(name="libgl1", version="1", architecture="amd64", file="x.deb", sha256="0" * 64, size=1)
    world.debian = LockedDebian(requested=("python3-view",), packages=(package,))
    assert world.check("import view\nx = 1\n") == []
    world.debian = LockedDebian(requested=("libgl1=1.6",), engine="its script")
    assert world.check("import view\nx = 2\n") == []
    world.debian = None
    world.project.write("trainer/lib/libGL.so.1", "\x7fELF")
    assert world.check("import view\nx = 3\n") == []


def test_what_an_engine_installs_may_bring_it(world: World) -> None:
    world.debian = LockedDebian(requested=("python3-opencv",), engine="its script")
    assert world.check("import view\n") == [f"trainer/task.py:1:1: view {NEEDS}"]


def test_an_unknown_library_is_a_note(world: World) -> None:
    world.files["view/_gl.abi3.so"] = make_library(needed=["libnobodyknows.so.1"])
    (note,) = world.check("import view\n")
    assert note.startswith("trainer/task.py:1:1: view needs libnobodyknows.so.1, which neither the base")
    world.debian = LockedDebian(requested=("nobody",), engine="")
    assert world.check("import view\nx = 1\n") == [], "the package may be its"


def test_nothing_is_refused_for_what_cannot_be_read(world: World) -> None:
    world.base = None
    assert world.check("import view\n") == []
    world.base = system(RELEASE)
    assert "view needs" in str(world.refused("import view\n")), "the answer was not remembered"
    world.base = system()  # no release that imgtool knows
    assert world.check("import view\nx = 1\n") == [f"trainer/task.py:1:1: view {NEEDS}"]


def test_lines_may_install_anything(world: World) -> None:
    world.project.spec(SPEC + "run: [apt-get install --yes libsndfile1]\n")
    assert world.check("import view\n") == []
    assert world.reads == 0


@pytest.mark.parametrize(("trim", "remembered"), [("", True), ("trim: false\n", False)])
def test_a_wheel_that_is_not_here_was_checked_where_the_lock_was_made(
    world: World, monkeypatch: pytest.MonkeyPatch, trim: str, remembered: bool
) -> None:
    """A lock that trims nothing was made without the wheels: the check comes when they are here."""
    world.project.spec(SPEC + trim)
    with monkeypatch.context() as absent:
        absent.setattr(WheelStore, "path", lambda *_: None)
        assert world.check("import view\n") == []
    if remembered:
        assert world.check("import view\n") == []
    else:
        assert "view needs" in str(world.refused("import view\n"))


def test_wheels_are_read_only_for_libraries_that_the_lock_names(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("read")

    with monkeypatch.context() as unread:
        unread.setattr(WheelLibraries, "find_missing", refuse)
        world.needed = ()
        assert world.check("import view\n") == []
        world.needed = (GL, "libown.so")
        package = DebianPackage(name="libgl1", version="1", architecture="amd64", file="x.deb", sha256="0" * 64, size=1)
        world.debian = LockedDebian(requested=("libgl1",), packages=(package,))
        world.project.write("trainer/lib/libown.so", "\x7fELF")
        assert world.check("import view\nx = 1\n") == []
    world.debian = None
    assert f"view {NEEDS}" in str(world.refused("import view\nx = 2\n"))
