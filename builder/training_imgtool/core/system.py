"""What not every system has: Linux's way, and what is done elsewhere. No other module makes these calls.

macOS has neither /proc, /dev/shm nor pipes of a chosen size, its /dev/fd/N shares the offset of the open file, and its
disks ignore case and how accents are composed.
Windows has no flock, owners, groups of processes or SIGHUP; only the types of `core` are checked for it, not the rest.
`dockerfile/jinja.py`, a program that imports nothing of this package, limits its memory by itself.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path

if sys.platform == "win32":
    SIGNALS = (signal.SIGINT, signal.SIGTERM)
    KILL = signal.SIGTERM  # ends a process at once there
    INTERRUPT = signal.SIGINT
else:
    import fcntl

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    KILL = signal.SIGKILL
    INTERRUPT = signal.SIGURG  # ignored by default
WARY: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # opens no link, waits for no FIFO
_NVIDIA = Path("/proc/driver/nvidia/gpus")  # a folder per GPU; source: the NVIDIA driver's README


def lock_file(descriptor: int, *, wait: bool = True) -> None:
    """Locks an open file until it is closed; raises BlockingIOError if another has it, OSError without locks."""
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    else:  # noqa: RET506 - so that types are checked for Windows
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def sync_folder(folder: Path) -> None:
    """Writes a folder's entries to the disk where the file system can."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EBADF}:
                raise
        finally:
            os.close(handle)


def read_at(handle: int, size: int, offset: int) -> bytes:
    """Reads at most `size` bytes from `offset` on; where the system must move the file's position, not for threads."""
    if sys.platform == "win32":
        os.lseek(handle, offset, os.SEEK_SET)
        data = os.read(handle, size)
    else:
        data = os.pread(handle, size, offset)
    return data


def take_over(handle: int, old: os.stat_result | None, mode: int | None) -> None:
    """Gives an open file `mode`, or that of the file it replaces, and that one's owner if the process is allowed to."""
    if sys.platform != "win32":
        if old is not None:
            now = os.fstat(handle)
            if (old.st_uid, old.st_gid) != (now.st_uid, now.st_gid):
                with suppress(PermissionError):
                    os.fchown(handle, old.st_uid, old.st_gid)
            mode = stat.S_IMODE(old.st_mode) if mode is None else mode
        if mode is not None:
            os.fchmod(handle, mode)


def user_number() -> int:
    """Returns the number of the user whose rights this process has."""
    if sys.platform == "win32":
        return 0
    else:  # noqa: RET505
        return os.geteuid()


def signal_program(pid: int, signum: int) -> None:
    """Sends a signal to a program, and if it leads a group to the programs that it started; raises OSError."""
    if sys.platform != "win32" and os.getpgid(pid) == pid:
        os.killpg(pid, signum)
    else:
        os.kill(pid, signum)


def interrupt_thread(thread: int) -> None:
    """Has a thread of this process look for signals."""
    if sys.platform != "win32":
        signal.pthread_kill(thread, INTERRUPT)


def never_wait(descriptor: int) -> None:
    """Has writes to a full pipe fail at once."""
    if sys.platform != "win32":
        os.set_blocking(descriptor, False)


def memory_folder() -> Path | None:
    """Returns a folder whose files are in memory only; None where there is none."""
    folder = Path("/dev/shm")  # noqa: S108 - for a file without a name
    return folder if sys.platform == "linux" and folder.is_dir() else None


def name_descriptor(descriptor: int) -> str | None:
    """Returns a path by which any program that inherits it opens the file from its start; None where there is none."""
    return f"/dev/fd/{descriptor}" if sys.platform == "linux" else None


def list_names(folder: int | Path) -> list[str]:
    """Lists a folder in order; on macOS accents are composed, as Git has them there, however the disk keeps them."""
    names = os.listdir(folder)  # noqa: PTH208 - names only
    return sorted(names if sys.platform == "linux" else (unicodedata.normalize("NFC", name) for name in names))


def list_children() -> list[int]:
    """Lists the running child processes."""
    if sys.platform == "linux":
        rows = (_fields(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat"))
        pairs = [(row[0], row[2]) for row in rows if len(row) > 2]
    else:
        pairs = [(pid, parent) for pid, parent in map(str.split, _ask_ps("-A", "-o", "pid=,ppid=").splitlines())]
    return [int(pid) for pid, parent in pairs if int(parent) == os.getpid()]


def start_of(pid: int) -> str:
    """Reads when a process began: in clock ticks after the boot, or as a date; "" if the system does not say."""
    if sys.platform == "linux":
        fields = _fields(str(pid))
        return fields[20] if len(fields) > 20 else ""
    else:  # noqa: RET505 - so that types are checked for other systems
        return _ask_ps("-o", "lstart=", "-p", str(pid)).strip()


def name_boot() -> str:
    """Reads the ID of this boot; "" if the system has none."""
    return _read("/proc/sys/kernel/random/boot_id")


def name_process_space() -> str:
    """Reads the namespace that process numbers are of; "" where there is one for all."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def list_nvidia_gpus() -> list[str] | None:
    """Lists the numbers of the GPUs that NVIDIA's driver has; None where the system does not say."""
    return [str(number) for number in range(len(list(_NVIDIA.iterdir())))] if _NVIDIA.is_dir() else None


def _fields(pid: str) -> list[str]:
    """Reads /proc/PID/stat: the number, the state, the parent and so on, without the name, which may hold spaces."""
    text = _read(f"/proc/{pid}/stat")
    return [pid, *text.rpartition(")")[2].split()] if text else []


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _ask_ps(*arguments: str) -> str:
    import subprocess

    try:
        return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
