"""Writes results to disk so that a reader sees the old file or the new one, whole, whatever happens in between."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from training_imgtool.core.errors import LocalFileError

_HINTS = {
    errno.ENOSPC: "free some space and run it again; the old file is as it was",
    errno.EDQUOT: "the disk quota is used up; the old file is as it was",
    errno.EROFS: "choose another place for the result",
    errno.EACCES: "choose another place, or ask for the right to write there",
    errno.EPERM: "choose another place, or ask for the right to write there",
    errno.ENOENT: "make the folder first",
    errno.EBUSY: "it is a mount of its own: mount its folder instead",  # rename(2)
}
_DAY_NS = 86_400 * 10**9
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})  # network file systems


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replaces the content of a file at once and for good (POSIX rename, then fsync of the folder).

    A symbolic link stays and its target is replaced. An existing file keeps its mode and, where the process
    may, its owner.

    Args:
        path: the file, new or old. Its folder must exist.
        data: all of it.
        mode: permission bits; by default those of the old file, for a new one those of the umask.

    Raises:
        LocalFileError: it could not be written; the old file is as it was, and no temporary file is left.
    """
    try:
        target, old = _target(path)
        temporary, handle = create_temporary_file(target.parent)
        try:
            with open(handle, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
                stream.write(data)
                stream.flush()
                _take_over(handle, old, mode)
                os.fsync(handle)
            os.replace(temporary, target)  # noqa: PTH105 - the operation this module is about
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(target.parent)
    except OSError as error:
        raise _failed(path, error) from error


def mark_used(path: Path, state: os.stat_result) -> None:
    """Notes that a file of the cache is in use, for `prune`, once a day: many systems do not note it by themselves.

    Args:
        path: the file.
        state: what `stat` says of it.
    """
    now = time.time_ns()
    if now - state.st_atime_ns > _DAY_NS:
        with contextlib.suppress(OSError):  # a cache that is only read
            os.utime(path, ns=(now, state.st_mtime_ns))


def check_writable(path: Path) -> None:
    """Finds out, before long work, whether `write_atomic(path)` could succeed; leaves nothing behind.

    Raises:
        LocalFileError: `path` is a folder, its folder is missing, or no file can be made there.
    """
    try:
        target, _ = _target(path)
        temporary, handle = create_temporary_file(target.parent)
        os.close(handle)
        temporary.unlink()
    except OSError as error:
        raise _failed(path, error) from error


@contextlib.contextmanager
def hold_lock(path: Path, note: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds the right to write `path` against other runs, in this process or others, for as long as the block runs.

    The lock is the kernel's (flock on a hidden file beside `path`), so it ends with its process however that
    ends; a file that a killed run left behind locks nothing.

    Args:
        path: the output that two runs must not write at once; it need not exist.
        note: is told once when another run holds it and this one waits.

    Raises:
        LocalFileError: the folder is missing or read-only.
    """
    try:
        target = Path(os.path.realpath(path))
        beside = target.with_name(f".{target.name}.imgtool-lock")
        handle = _acquire(beside, path, note)
    except OSError as error:
        raise _failed(path, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()  # while it is still held: who waits notices that its file is gone, and makes a new one
        os.close(handle)


def _acquire(beside: Path, path: Path, note: Callable[[str], None] | None) -> int:
    """A descriptor that holds the lock of the file `beside`."""
    while True:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            _wait(handle, path, note)
            note = None
            if _same_file(handle, beside):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
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
            holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            note(f"waiting for {who}, which writes {path}")
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        if note is not None:
            note(f"{path}: the file system has no locks; do not run imgtool twice on it at once")


def _same_file(handle: int, path: Path) -> bool:
    """Whether `path` still is the open file: the one before us deletes it when it is done."""
    try:
        there = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - compared with fstat
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), there)


def _target(path: Path) -> tuple[Path, os.stat_result | None]:
    """Where the bytes go, links followed, and what is there now; raises LocalFileError for what is no file."""
    target = Path(os.path.realpath(path))
    try:
        old = target.lstat()
    except FileNotFoundError:
        return target, None
    if stat.S_ISDIR(old.st_mode):
        raise LocalFileError(f"cannot write {path}: it is a folder", hint="give a file's name")
    if stat.S_ISLNK(old.st_mode):  # realpath gives up on a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(old.st_mode):
        raise LocalFileError(
            f"cannot write {path}: it is not a regular file", hint="without it the result is on stdout"
        )
    return target, old


def create_temporary_file(folder: Path, mode: int = 0o666) -> tuple[Path, int]:
    """A new file in `folder`, its mode less the umask, and its descriptor, open for writing; raises OSError."""
    path = folder / f".imgtool-{os.urandom(8).hex()}.tmp"
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def _take_over(handle: int, old: os.stat_result | None, mode: int | None) -> None:
    """Gives the new file the old one's owner and mode; the owner only where the process may."""
    if old is not None:
        now = os.fstat(handle)
        if (old.st_uid, old.st_gid) != (now.st_uid, now.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(handle, old.st_uid, old.st_gid)
    if mode is not None:
        os.fchmod(handle, mode)
    elif old is not None:
        os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF}:  # file systems without it; the rename itself returned
            raise
    finally:
        os.close(handle)


def _failed(path: Path, error: OSError) -> LocalFileError:
    cause = (error.strerror or str(error)).lower()
    if error.errno == errno.ENOENT:
        cause = f"there is no folder {Path(os.path.realpath(path)).parent}"
    return LocalFileError(f"cannot write {path}: {cause}", hint=_HINTS.get(error.errno or 0))
