"""Runs a build backend's hook (PEP 517) without network and without the user's files. A program of its own.

    PYTHON -s -S build_child.py JOB

JOB is a JSON file: `env` (a folder with the build requirements, unpacked), `source`, `work` (what the backend may write
to), `variables` (of the environment, for the backend alone), `backend` (`module:object`), `backend_path`, `hook` and
`arguments`. The answer goes to `WORK/result.json`. The Linux kernel confines this process and its children before it
imports anything of the archive: Landlock opens the system's folders for reading and the work folder for writing, and a
seccomp filter refuses sockets. Runs on Python 3.7.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import platform
import struct
import sys
from typing import Any

_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2  # prctl(2)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # syscalls, the same numbers on x86_64 and aarch64
_READ = 0b1101  # execute, read a file, list a folder
_FILE = 0b0111 | 1 << 14  # the rights that a rule about one file may have
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/dev/urandom", "/dev/random", "/dev/zero")
_ARCHITECTURES = {  # the audit number, and the system calls socket and io_uring_setup
    "x86_64": (0xC000003E, (41, 425)),
    "aarch64": (0xC00000B7, (198, 425)),
}
_NOT_PERMITTED = 0x00050001  # SECCOMP_RET_ERRNO with EPERM
NOT_CONFINED = 97  # the exit status


def confine(work: str) -> None:
    """Leaves this process the system's folders to read and `work` to write. Raises OSError where the kernel cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    _call(libc.prctl, _NO_NEW_PRIVS, 1, 0, 0, 0)
    version = _call(libc.syscall, _CREATE_RULESET, None, 0, 1)
    handled = (1 << 13) - 1 | (1 << 13 if version > 1 else 0) | (1 << 14 if version > 2 else 0)
    attributes = ctypes.create_string_buffer(struct.pack("=Q", handled), 8)
    rules = _call(libc.syscall, _CREATE_RULESET, attributes, 8, 0)
    readable = {*_SYSTEM, sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    for path, rights in [(path, _READ) for path in sorted(readable)] + [("/dev/null", handled), (work, handled)]:
        if os.path.exists(path):
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
            wanted = rights & handled if os.path.isdir(path) else rights & handled & _FILE
            rule = ctypes.create_string_buffer(struct.pack("=Qi", wanted, parent), 12)
            _call(libc.syscall, _ADD_RULE, rules, 1, rule, 0)
            os.close(parent)
    _call(libc.syscall, _RESTRICT_SELF, rules, 0)
    _refuse_sockets(libc)


def _refuse_sockets(libc: Any) -> None:
    """A classic BPF program: a system call of another architecture, or one that makes sockets, fails with EPERM."""
    audit, numbers = _ARCHITECTURES[platform.machine()]
    program = [
        (0x20, 0, 0, 4),
        (0x15, 0, len(numbers) + 2, audit),
        (0x20, 0, 0, 0),
        (0x35, len(numbers), 0, 0x40000000),
    ]
    program += [(0x15, len(numbers) - index - 1, 0, number) for index, number in enumerate(numbers)]
    program[-1] = (0x15, 0, 1, numbers[-1])
    program += [(0x06, 0, 0, _NOT_PERMITTED), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    _call(libc.prctl, _SET_SECCOMP, _FILTER, header, 0, 0)


def _call(function: Any, *arguments: Any) -> int:
    result: int = function(*(ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _run(job: dict[str, Any]) -> Any:
    os.chdir(job["source"])
    sys.path[:1] = [*job["backend_path"], job["env"]]  # instead of this program's folder
    os.environ.update(job["variables"])
    module, _, name = job["backend"].partition(":")
    backend: Any = importlib.import_module(module)
    for part in filter(None, name.split(".")):
        backend = getattr(backend, part)
    hook = getattr(backend, job["hook"], None)
    return [] if hook is None else hook(*job["arguments"])


def main() -> int:
    """Reads the job, confines itself, runs the hook, writes the answer."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        job = json.load(stream)
    try:
        confine(job["work"])
    except (OSError, KeyError) as error:
        print("cannot confine a build here: %s" % error, file=sys.stderr)
        return NOT_CONFINED
    answer = _run(job)
    with open(os.path.join(job["work"], "result.json"), "w", encoding="utf-8") as stream:
        json.dump(answer, stream)
    return 0


if __name__ == "__main__":
    sys.exit(main())
