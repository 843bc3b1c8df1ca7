"""Runs a call as a user without rights: root, whom no mode stops, cannot test what permissions do."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that every user may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def as_nobody(call: Callable[[], str]) -> str:
    """What `call` returns in a child process that is nobody; in this process when it is not root's."""
    if os.geteuid() != 0:
        return call()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, call().encode())
        except BaseException as error:  # noqa: BLE001 - else the child goes on with the other tests
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = b""
    while block := os.read(reading, 4096):
        said += block
    os.close(reading)
    os.waitpid(pid, 0)
    return said.decode()
