"""Asks the system for facts, such as child processes. Without /proc, most functions return nothing."""

from __future__ import annotations

import os
import sys
import unicodedata
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia/gpus")  # one folder per GPU; source: the NVIDIA driver's README


def memory_folder() -> Path | None:
    """Returns a folder whose files exist only in memory; None if there is none."""
    folder = Path("/dev/shm")  # noqa: S108 - for a file without a name
    return folder if folder.is_dir() else None


def list_names(folder: int | Path) -> list[str]:
    """Lists the names in a folder, sorted. On macOS, this function converts the names to NFC, as Git does."""
    names = os.listdir(folder)  # noqa: PTH208 - names only
    return sorted(names if sys.platform == "linux" else (unicodedata.normalize("NFC", name) for name in names))


def list_children() -> list[int]:
    """Lists the running child processes of this process."""
    rows = (_fields(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat"))
    return [int(row[0]) for row in rows if len(row) > 2 and int(row[2]) == os.getpid()]


def start_of(pid: int) -> str:
    """Reads when a process began, in clock ticks after the boot; "" if the system does not tell the time."""
    fields = _fields(str(pid))
    return fields[20] if len(fields) > 20 else ""


def name_boot() -> str:
    """Reads the ID that the system gave to this boot; "" if there is no such ID."""
    return _read("/proc/sys/kernel/random/boot_id")


def name_process_space() -> str:
    """Reads the name of this process's PID namespace; "" if the system has no such namespaces."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def list_nvidia_gpus() -> list[str] | None:
    """Lists the numbers of the GPUs that NVIDIA's driver lists in /proc; None if /proc has no such list."""
    return [str(number) for number in range(len(list(_NVIDIA.iterdir())))] if _NVIDIA.is_dir() else None


def _fields(pid: str) -> list[str]:
    """Reads the fields of /proc/PID/stat (number, state, parent, …) without the name, which may contain spaces."""
    text = _read(f"/proc/{pid}/stat")
    return [pid, *text.rpartition(")")[2].split()] if text else []


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
