"""Writes files so that a reader sees either the whole old file or the whole new one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from training_imgtool.base.errors import LocalFileError

_HINTS = {
    errno.ENOSPC: "free some space and run the command again; the old file is as it was",
    errno.EACCES: "choose another place, or get write permission there",
    errno.ENOENT: "create the folder first",
    errno.EBUSY: "the file is a mount point; mount its folder instead",  # rename(2)
}
_DAY_NS = 86_400 * 10**9


def write_atomic(
    path: Path, data: bytes, *, mode: int | None = None, follow: bool = True, durable: bool = True
) -> None:
    """Replaces the content of a file in one step (POSIX rename, then fsync of the folder).

    An existing file keeps its mode and, if the process is allowed to set it, its owner.

    Args:
        path: the file, new or old. Its folder must exist.
        data: the file's whole content.
        mode: permission bits; by default those of the old file, for a new one those of the umask.
        follow: whether to write to the target of a symbolic link; otherwise the file replaces the link.
        durable: whether to wait for the disk, so that the content outlasts a loss of power.

    Raises:
        LocalFileError: the write failed; the old file is as it was, and no temporary file is left.
    """
    try:
        target, old = _target(path) if follow else (path, None)
        temporary, handle = create_temporary_file(target.parent, 0o666 if mode is None else mode)
        try:
            with open(handle, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
                stream.write(data)
                stream.flush()
                _take_over(handle, old, mode)
                if durable:
                    os.fsync(handle)
            os.replace(temporary, target)  # noqa: PTH105 - the operation this module is about
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        if durable:
            _sync_folder(target.parent)
    except OSError as error:
        raise _wrap_error(path, error) from error


def mark_used(path: Path, state: os.stat_result) -> None:
    """Records for `prune`, at most once a day, that a run used a file of the cache (many systems mount with noatime).

    Args:
        path: the file.
        state: its `stat` result.
    """
    now = time.time_ns()
    if now - state.st_atime_ns > _DAY_NS:
        with contextlib.suppress(OSError):  # a read-only cache
            os.utime(path, ns=(now, state.st_mtime_ns))


def check_writable(path: Path) -> None:
    """Checks, before long work, that `write_atomic(path)` can succeed; leaves nothing behind.

    Raises:
        LocalFileError: `path` is a folder, its parent folder is missing, or the process cannot create a file there.
    """
    try:
        target, _ = _target(path)
        temporary, handle = create_temporary_file(target.parent)
        os.close(handle)
        temporary.unlink()
    except OSError as error:
        raise _wrap_error(path, error) from error


@contextlib.contextmanager
def hold_lock(path: Path, note: Callable[[str], None] | None = None) -> Iterator[int]:
    """Keeps other threads and processes from writing `path` while the block runs.

    The lock is a flock on a hidden file next to `path`, so the kernel releases it when the process ends. A hidden file
    that a killed run left behind does not lock `path`. Yields the descriptor of the hidden file; a program that
    inherits the descriptor also holds the lock.

    Args:
        path: the output that two runs must not write at once; it need not exist.
        note: receives one message when this run has to wait for another.

    Raises:
        LocalFileError: the folder is missing or read-only.
    """
    try:
        target = Path(os.path.realpath(path))
        beside = target.with_name(f".{target.name}.imgtool-lock")
        handle = _acquire(beside, path, note)
    except OSError as error:
        raise _wrap_error(path, error) from error
    try:
        yield handle
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()  # still locked; a waiting run notices that its file is gone, and creates a new one
        os.close(handle)


def _acquire(beside: Path, path: Path, note: Callable[[str], None] | None) -> int:
    """Opens and locks the file `beside`; returns its descriptor."""
    while True:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _wait(handle, path, note)
            note = None
            if _same_file(handle, beside):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _wait(handle: int, path: Path, note: Callable[[str], None] | None) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if note is not None:
            note(f"waiting for another imgtool, which is writing {path}")
        fcntl.flock(handle, fcntl.LOCK_EX)


def _same_file(handle: int, path: Path) -> bool:
    """Returns whether the open file is still at `path`; the process that held the lock before may have deleted it."""
    try:
        state = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - compared with fstat
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), state)


def _target(path: Path) -> tuple[Path, os.stat_result | None]:
    """Follows links; returns the file and its state (None for a new file); raises LocalFileError for a folder."""
    target = Path(os.path.realpath(path))
    try:
        old = target.lstat()
    except FileNotFoundError:
        return target, None
    if not stat.S_ISREG(old.st_mode):
        what = "a folder" if stat.S_ISDIR(old.st_mode) else "not a regular file"
        raise LocalFileError(f"cannot write {path}: it is {what}", hint="give a file's name")
    return target, old


def _take_over(handle: int, old: os.stat_result | None, mode: int | None) -> None:
    """Sets an open file's mode to `mode` or the old file's mode, and, if permitted, its owner to the old owner."""
    if old is not None:
        with contextlib.suppress(PermissionError):
            os.fchown(handle, old.st_uid, old.st_gid)
        mode = stat.S_IMODE(old.st_mode) if mode is None else mode
    if mode is not None:
        os.fchmod(handle, mode)


def _sync_folder(folder: Path) -> None:
    """Writes a folder's entries to the disk if the file system can do that."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF}:
            raise
    finally:
        os.close(handle)


def create_temporary_file(folder: Path, mode: int = 0o666) -> tuple[Path, int]:
    """Creates a file in `folder` with `mode` minus the umask; returns it and its descriptor. Raises OSError."""
    path = folder / f".imgtool-{os.urandom(8).hex()}.tmp"
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)


def _wrap_error(path: Path, error: OSError) -> LocalFileError:
    cause = (error.strerror or str(error)).lower()
    if error.errno == errno.ENOENT:
        cause = f"there is no folder {Path(os.path.realpath(path)).parent}"
    return LocalFileError(f"cannot write {path}: {cause}", hint=_HINTS.get(error.errno or 0))
