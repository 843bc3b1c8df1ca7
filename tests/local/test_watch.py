"""What a change takes, which files it brings, and when it is noticed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.local.project import SPEC, write_lock
from training_imgtool.base.errors import ImgtoolError, InputError
from training_imgtool.base.settings import from_environment
from training_imgtool.local.file_watch import FileWatch, list_folders, look
from training_imgtool.local.watch import How, Version, classify, list_changed
from training_imgtool.make.role_files import choose_files, list_role_files, write_tar
from training_imgtool.model.load import load
from training_imgtool.model.spec import Role
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import Inputs, prepare
from training_imgtool.plan.project_files import SpecChoice


class Folder:
    """A spec's folder with its lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("trainer/task.py", "X = 1\n")
        self.write("trainer/sub/part.py", "Y = 1\n")
        self.write("image.yaml", json.dumps(SPEC))
        self.lock()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def lock(self, version: str = "1.26.4") -> None:
        write_lock(self.root, version)

    def read(self) -> Inputs:
        settings = from_environment({"HOME": str(self.root), "IMGTOOL_CACHE": str(self.root.parent / "cache")})
        return prepare(load(self.root / "image.yaml"), Machine.open(settings), SpecChoice(locked=True))

    def version(self) -> Version:
        return Version.of(self.read(), time.monotonic())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "project")


def change_spec(**changes: object) -> Callable[[Folder], None]:
    return lambda folder: folder.write("image.yaml", json.dumps({**SPEC, **changes}))


TEMPLATE = '{% extends "base.Dockerfile.j2" %}\n{% block BLOCK %}\nRUN true\n{% endblock %}\n'
CHANGES: dict[str, tuple[Callable[[Folder], None], How]] = {
    "nothing": (lambda folder: folder.write("trainer/task.py", "X = 1\n"), How.NOTHING),
    "an ignored file": (lambda folder: folder.write("trainer/.task.py.swp", "x"), How.NOTHING),
    "another folder's file": (lambda folder: folder.write("notes/x.txt", "x"), How.NOTHING),
    "code": (lambda folder: folder.write("trainer/task.py", "X = 2\n"), How.CODE),
    "a new file": (lambda folder: folder.write("trainer/new/file.txt", "x"), How.CODE),
    "a deleted file": (lambda folder: (folder.root / "trainer/sub/part.py").unlink(), How.IMAGES),
    "a mode": (lambda folder: (folder.root / "trainer/task.py").chmod(0o755), How.CODE),
    "a pattern": (lambda folder: folder.write(".dockerignore", "trainer/sub\n"), How.IMAGES),
    "arguments": (change_spec(args=["--epochs=4"]), How.IMAGES),
    "a variable": (change_spec(env={"A": "1"}), How.IMAGES),
    "a count": (change_spec(roles={**SPEC["roles"], "worker": {"machine": "n1-standard-4", "count": 2}}), How.IMAGES),
    "wheels": (lambda folder: folder.lock("1.26.3"), How.IMAGES),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_change_takes(folder: Folder, name: str) -> None:
    change, how = CHANGES[name]
    before = folder.version()
    change(folder)
    after = folder.version()
    assert classify(before, before, after) == how
    assert after.is_like(before) is (how is How.NOTHING)


def test_a_change_back_to_what_the_images_have_takes_files(folder: Folder) -> None:
    built = folder.version()
    folder.write("trainer/task.py", "X = 2\n")
    applied = folder.version()
    folder.write("trainer/task.py", "X = 1\n")
    assert classify(built, applied, folder.version()) is How.CODE


def test_code_that_a_run_instruction_may_read_takes_images(folder: Folder) -> None:
    folder.write("own.j2", TEMPLATE.replace("BLOCK", "after_code"))
    roles = {**SPEC["roles"], "worker": {"machine": "n1-standard-4", "template": "own.j2"}}
    folder.write("image.yaml", json.dumps({**SPEC, "roles": roles}))
    folder.lock()
    before = folder.version()
    assert before.files[Role.WORKER] is None
    folder.write("trainer/task.py", "X = 2\n")
    assert classify(before, before, folder.version()) is How.IMAGES


def test_the_files_of_a_role_are_those_of_its_layer(folder: Folder) -> None:
    inputs = folder.read()
    files = list_role_files(inputs.images[0])
    assert files is not None
    assert sorted(files) == [
        "/app",
        "/app/trainer",
        "/app/trainer/sub",
        "/app/trainer/sub/part.py",
        "/app/trainer/task.py",
    ]
    assert files["/app/trainer"].is_folder
    entry = files["/app/trainer/task.py"].item.entry
    assert (entry.mode, entry.uid, entry.gid, entry.size) == (0o644, 0, 0, 6)


def test_held_files_are_as_they_were(folder: Folder) -> None:
    files = folder.version().files[Role.MASTER]
    assert files is not None
    folder.write("trainer/task.py", "X = 3333\n")
    assert b"X = 1\n" in b"".join(write_tar(files.values(), None))


def test_of_much_data_only_what_differs_is_put(folder: Folder) -> None:
    folder.write("trainer/data/numbers.bin", "1" * (9 << 20))
    built = folder.version().files[Role.MASTER]
    folder.write("trainer/sub/part.py", "Y = 2\n")
    wanted = folder.version().files[Role.MASTER]
    assert built is not None
    assert wanted is not None
    folders = ["/app", "/app/trainer", "/app/trainer/sub"]
    assert sorted(choose_files(built, wanted)) == [*folders, "/app/trainer/sub/part.py"]
    small = {path: file for path, file in wanted.items() if "data" not in path}
    assert choose_files(built, small) == small


def test_changed_files_are_listed(folder: Folder) -> None:
    before = folder.read()
    folder.write("trainer/task.py", "X = 2\n")
    folder.write("trainer/new.py", "")
    (folder.root / "trainer/sub/part.py").unlink()
    assert list_changed(before, folder.read()) == ("trainer/new.py", "trainer/sub/part.py", "trainer/task.py")
    folder.lock("1.26.3")
    change_spec(args=["--epochs=4"])(folder)
    listed = list_changed(before, folder.read())
    assert (listed[0], listed[-1]) == ("image.yaml", "the lock")


def test_a_look_sees_what_counts(folder: Folder) -> None:
    folders = list_folders(folder.read())
    assert {path.relative_to(folder.root).as_posix() for path in folders} == {".", "trainer", "trainer/sub"}
    job = folder.root / "job"
    before = look(folders, job)
    for name in ("trainer/__pycache__/x.pyc", "trainer/.x.swp", "job/checkpoint"):
        folder.write(name, "x")
    after = look(folders, job)
    assert {path: rows for path, rows in after.items() if path != folder.root} == {
        path: rows for path, rows in before.items() if path != folder.root
    }
    folder.write("trainer/sub/part.py", "Y = 22\n")
    assert look(folders, job) != after


class Notices:
    """Counts what a FileWatch reports."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.failures = folder, list[str]()
        self.seen: list[str] = []
        self.event = threading.Event()

    def changed(self, began: float) -> Inputs:
        assert began <= time.monotonic()
        self.seen.append((self.folder.root / "trainer/task.py").read_text())
        self.event.set()
        if "wrong" in self.seen[-1]:
            raise InputError("wrong")
        return self.folder.read()

    def failed(self, error: ImgtoolError) -> None:
        self.failures.append(str(error))

    def wait(self) -> None:
        assert self.event.wait(20)
        self.event.clear()


def test_a_change_is_noticed_once_it_is_over(folder: Folder) -> None:
    notices = Notices(folder)
    watch = FileWatch(folder.read(), folder.root / "job", notices.changed, notices.failed)
    watch.start()
    try:
        folder.write("trainer/task.py", "X = 2\n")
        notices.wait()
        folder.write("trainer/new/inner/deep.py", "")
        notices.wait()
        folder.write("trainer/task.py", "wrong\n")
        notices.wait()
        deadline = time.monotonic() + 10
        while not notices.failures and time.monotonic() < deadline:
            time.sleep(0.05)
        assert notices.failures == ["wrong"]
    finally:
        watch.stop()
