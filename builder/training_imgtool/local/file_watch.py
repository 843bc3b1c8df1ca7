"""Detects changes to the files of images: reads the folders of these files several times a second."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from training_imgtool.base.context.entries import Kind, OnDisk
from training_imgtool.base.context.own_files import is_litter
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.plan.inputs import Inputs

_LEAST_PAUSE = 0.05  # seconds between two readings,
_SHARE = 20  # or this multiple of the time for one reading
_QUIET = 0.05  # seconds without a further change: editors write a file in several steps

Rows = frozenset[tuple[str, int, int, int, int]]
Look = dict[Path, Rows]


def list_folders(inputs: Inputs) -> frozenset[Path]:
    """Lists the folders that contain files of these images, or files that affect the images."""
    file = inputs.spec_file
    named = [file.spec.requirements, file.spec.template, *(role.template for role in file.spec.roles.values())]
    folders = {file.folder, *((file.folder / name).parent for name in named if isinstance(name, str))}
    for entry in inputs.context.entries:
        if isinstance(entry.origin, OnDisk):
            folders.add((entry.origin.root / entry.origin.path).parent)
        elif entry.kind is Kind.DIRECTORY:
            folders.add(file.entry.top / entry.path)
    return frozenset(folders)


def look(folders: Iterable[Path], skip: Path) -> Look:
    """Reads names, times and sizes of files in `folders`; ignores temporary files of tools, and the folder `skip`."""
    return {folder: frozenset(_list_rows(folder, skip)) for folder in folders}


def _list_rows(folder: Path, skip: Path) -> Iterator[tuple[str, int, int, int, int]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_litter(entry.name) and entry.path != str(skip):
                    state = entry.stat(follow_symlinks=False)
                    yield entry.name, state.st_mtime_ns, state.st_size, state.st_ino, state.st_mode
    except OSError:
        return  # deleted meanwhile; the next reading shows that


class FileWatch:
    """Reads the folders in a thread, which calls `changed` once files have changed and then stayed the same briefly.

    Args:
        inputs: the inputs whose files to watch.
        skip: a folder whose changes to ignore.
        changed: receives the time of the first change, by the monotonic clock; returns the new inputs.
        failed: receives the error of `changed`, unless files have changed meanwhile.
    """

    def __init__(
        self, inputs: Inputs, skip: Path, changed: Callable[[float], Inputs], failed: Callable[[ImgtoolError], None]
    ) -> None:
        self._skip, self._changed, self._failed = skip, changed, failed
        self._before = look(list_folders(inputs), skip)
        self._again, self._stopped = False, threading.Event()

    def start(self) -> None:
        """Starts to watch."""
        threading.Thread(target=self._run, name="imgtool-files", daemon=True).start()

    def stop(self) -> None:
        """Stops watching."""
        self._stopped.set()

    def _run(self) -> None:
        pause = _LEAST_PAUSE
        while not self._stopped.wait(pause):
            began = time.monotonic()
            now = look(self._before, self._skip)
            pause = max(_LEAST_PAUSE, _SHARE * (time.monotonic() - began))
            if now != self._before or self._again:
                self._again = False
                self._before = self._settle(now)
                self._read(began)

    def _settle(self, now: Look) -> Look:
        while not self._stopped.wait(_QUIET):
            again = look(now, self._skip)
            if again == now:
                break
            now = again
        return now

    def _read(self, began: float) -> None:
        """Calls `changed`, and watches the new inputs' folders; reads new folders again, as they may have changed."""
        try:
            folders = list_folders(self._changed(began))
        except ImgtoolError as error:
            if look(self._before, self._skip) == self._before:
                self._failed(error)
            return
        if new := folders - self._before.keys():
            self._again = True
        self._before = {folder: self._before[folder] for folder in folders - new} | look(new, self._skip)
