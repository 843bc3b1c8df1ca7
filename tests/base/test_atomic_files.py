from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.other_user import NOBODY
from training_imgtool.base import atomic_files
from training_imgtool.base.atomic_files import check_writable, hold_lock, write_atomic
from training_imgtool.base.errors import LocalFileError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(path: Path, data: bytes = b"new") -> LocalFileError:
    with pytest.raises(LocalFileError) as caught:
        write_atomic(path, data)
    assert caught.value.exit_code == 9
    assert str(caught.value).startswith(f"cannot write {path}: ")
    return caught.value


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "f", b"data")
    finally:
        os.umask(before)
    assert (tmp_path / "f").read_bytes() == b"data"
    assert mode(tmp_path / "f") == 0o640
    assert only(tmp_path) == ["f"]


@pytest.mark.parametrize(("old", "asked", "new"), [(0o640, None, 0o640), (0o755, None, 0o755), (0o640, 0o600, 0o600)])
def test_an_old_file_keeps_its_mode_unless_asked(tmp_path: Path, old: int, asked: int | None, new: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(old)
    write_atomic(path, b"", mode=asked)
    assert path.read_bytes() == b""
    assert mode(path) == new


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/f").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("real/f")
    dangling = tmp_path / "dangling"
    dangling.symlink_to("real/new")
    write_atomic(link, b"1")
    write_atomic(dangling, b"2")
    assert link.is_symlink()
    assert (tmp_path / "real/f").read_bytes() == b"1"
    assert (tmp_path / "real/new").read_bytes() == b"2"
    assert only(tmp_path) == ["dangling", "link", "real"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_stays(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    os.chown(path, NOBODY, NOBODY)
    write_atomic(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    before = only(tmp_path)
    assert "it is a folder" in str(refused(tmp_path / "folder"))
    assert "it is not a regular file" in str(refused(tmp_path / "fifo"))
    assert "it is not a regular file" in str(refused(tmp_path / "loop"))
    assert "not a directory" in str(refused(tmp_path / "file/below"))
    error = refused(tmp_path / "no/f")
    assert str(error).endswith(f"there is no folder {tmp_path}/no")
    assert error.hint == "create the folder first"
    assert "file name too long" in str(refused(tmp_path / ("x" * 300)))
    assert only(tmp_path) == before


@pytest.mark.parametrize("step", ["write", "fsync", "replace", "fchmod"])
def test_a_fault_at_any_step_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def fail(*arguments: object, **keywords: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "write":
        monkeypatch.setattr(atomic_files, "open", lambda *a, **k: contextlib.nullcontext(Failing(fail)), raising=False)
    else:
        monkeypatch.setattr(f"training_imgtool.base.atomic_files.os.{step}", fail)
    error = refused(path)
    monkeypatch.undo()
    assert "no space left on device" in str(error)
    assert "the old file is as it was" in (error.hint or "")
    assert path.read_bytes() == b"old"
    assert only(tmp_path) == ["f"]


class Failing:
    """A stream that cannot be written."""

    def __init__(self, write: object) -> None:
        self.write = write


def test_ctrl_c_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("training_imgtool.base.atomic_files.os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert only(tmp_path) == ["f"]


@contextlib.contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    """A file system at `folder`; skips where this process may not mount."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting needs root")
    done = subprocess.run(["mount", *arguments, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_check_writable_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    check_writable(tmp_path / "old")
    check_writable(tmp_path / "new")
    assert only(tmp_path) == ["old"]
    with pytest.raises(LocalFileError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(LocalFileError, match="there is no folder"):
        check_writable(tmp_path / "no/f")


@pytest.mark.parametrize("second_name", ["config.yaml", "link"])
def test_a_lock_keeps_the_second_out_and_tells_it_once(tmp_path: Path, second_name: str) -> None:
    """Also when the second names the same output by a symbolic link."""
    (tmp_path / "link").symlink_to("config.yaml")
    notes: list[str] = []
    order: list[str] = []

    def second() -> None:
        with hold_lock(tmp_path / second_name, notes.append):
            order.append("second")

    with hold_lock(tmp_path / "config.yaml", notes.append):
        thread = threading.Thread(target=second)
        thread.start()
        deadline = time.monotonic() + 10
        while not notes and time.monotonic() < deadline:
            time.sleep(0.005)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert notes == [f"waiting for another imgtool, which is writing {tmp_path / second_name}"]
    assert only(tmp_path) == ["link"]


def test_a_file_that_is_a_mount_is_said(tmp_path: Path) -> None:
    """As in a container where only config.yaml was mounted."""
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "f").touch()
    with mounted(tmp_path / "f", "--bind", str(tmp_path / "there")):
        error = refused(tmp_path / "f")
    assert "mount its folder instead" in (error.hint or "")
    assert only(tmp_path) == ["f", "there"]
    assert (tmp_path / "there").read_bytes() == b"old"


HOLD = """\
import sys, time
from pathlib import Path
from training_imgtool.base.atomic_files import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_run_leaves_no_stale_lock(tmp_path: Path) -> None:
    path = tmp_path / "f"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert only(tmp_path) == [".f.imgtool-lock"]
    notes: list[str] = []
    with hold_lock(path, notes.append):
        pass
    assert notes == []
    assert only(tmp_path) == []
