"""A pytest plugin (`-p tests.without_linux`): takes from this process what Linux has and macOS has not."""

from __future__ import annotations

import fcntl
import os
import signal
from types import SimpleNamespace

from training_imgtool.core import system

GONE = {
    fcntl: ("F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_NOTIFY"),
    os: ("sched_getaffinity", "posix_fadvise", "copy_file_range", "memfd_create", "O_PATH", "getxattr"),
    signal: ("SIGSTKFLT", "SIGPWR", "SIGRTMIN", "SIGRTMAX"),
}
for module, names in GONE.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
vars(system)["sys"] = SimpleNamespace(platform="darwin")
