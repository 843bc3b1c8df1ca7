"""The program of warm containers as a plain process of this machine, with modules that stand for wheels."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from training_imgtool.local.answers import Answer, AnswerReader, Process
from training_imgtool.local.warm_source import read_command

TOKEN = "\x1eimgtool test"


class WarmProcess:
    """One; `app` is the folder of the program, `site` that of the wheels."""

    def __init__(self, root: Path, *words: str, env: Mapping[str, str] | None = None, **order: Any) -> None:
        self.root, self.app, self.site = root, root / "app", root / "lib/site-packages"
        program = read_command([sys.executable, *words])
        assert program is not None
        command = program.command(TOKEN, root=str(self.app), **order)
        self._popen = subprocess.Popen(
            command,
            cwd=self.app,
            env={"PYTHONPATH": str(self.site), "PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.answers: queue.Queue[Answer] = queue.Queue()
        self.process, self.is_warm = Process(0), False
        reader = AnswerReader(TOKEN, self._print, self._take)
        lock = threading.Lock()
        streams = (self._popen.stdout, self._popen.stderr)
        self._threads = [threading.Thread(target=self._read, args=(stream, reader, lock)) for stream in streams]
        for thread in self._threads:
            thread.start()
        self.answer("ready")

    def _read(self, stream: Any, reader: AnswerReader, lock: threading.Lock) -> None:
        with stream:
            for line in stream:
                with lock:
                    reader.feed(line)

    def _print(self, block: bytes) -> None:
        self.process.print(block)

    def _take(self, answer: Answer) -> None:
        self.answers.put(answer)

    def answer(self, state: str) -> Answer:
        """Waits for the next answer, which has to be this one."""
        found = self.answers.get(timeout=20)
        assert found["state"] == state, found
        return found

    def start(self) -> None:
        """Starts the program once more."""
        self.process = Process(self.process.number + 1)
        self.signal(signal.SIGUSR1)

    def signal(self, signum: int) -> None:
        self._popen.send_signal(signum)

    def run(self) -> tuple[int, str]:
        """Runs the program once; returns its exit code and what it printed."""
        self.start()
        self.is_warm = bool(self.answer("started")["warm"])
        ended = self.answer("ended")
        return int(ended["code"]), self.printed()

    def printed(self) -> str:
        self.process.end(RuntimeError())  # type: ignore[arg-type]
        return b"".join(self.process.output()).decode()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self._popen.kill()
        self._popen.wait()
        for thread in self._threads:
            thread.join(5)


def make_folders(root: Path, files: Mapping[str, str]) -> None:
    """Writes files below `root`, in which there are always the two folders."""
    for folder in ("app", "lib/site-packages"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = root / name.replace("site/", "lib/site-packages/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
