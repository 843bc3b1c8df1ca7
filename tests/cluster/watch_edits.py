"""Edits as people make them while a cluster watches, drawn at random, and what a program says of its surroundings."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.cluster.project import write_lock
from training_imgtool.core.atomic_files import write_atomic

SAY = '''\
"""Prints all that a program can see of its files, modules and variables."""
import hashlib, json, os, random, sys

def rows(root):
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names + folders):
            path = os.path.join(folder, name)
            if "__pycache__" not in path:
                state = os.lstat(path)
                yield path, oct(state.st_mode), state.st_uid, state.st_gid, os.path.isdir(path) or int(state.st_mtime)

def say():
    for row in rows("/app"):
        print("file", *row)
    for name in sorted(name for name, module in sys.modules.items() if "/app/" in str(getattr(module, "__file__", ""))):
        print("module", name)
    print("left", sorted(os.listdir("/tmp")), sorted(os.listdir("/dev/shm")), os.listdir("/root"))
    print("words", sys.argv, os.getcwd(), sys.path, oct(os.umask(0o22)), os.getuid())
    env = {name: value for name, value in os.environ.items() if name != "HOSTNAME"}
    print("variables", hashlib.sha256(json.dumps(sorted(env.items())).encode()).hexdigest()[:8], sorted(env))
    print("loss", random.Random(7).random(), [random.seed(3), random.random()][1], flush=True)
'''
TURNS = '''\
"""In a cluster of a master and a worker, the master waits until the worker has ended well."""
import json, os, pathlib, time

CONFIG = json.loads(os.environ.get("TF_CONFIG", "{}"))
IS_WORKER = CONFIG.get("task", {}).get("type") == "worker"
DONE = pathlib.Path("/job/worker-has-ended")

def begin():
    until = time.monotonic() + 60
    if "worker" in CONFIG.get("cluster", {}) and not IS_WORKER:
        while not DONE.exists() and time.monotonic() < until:
            time.sleep(0.02)
        DONE.unlink() if DONE.exists() else None

def end():
    if IS_WORKER:
        print("reads", pathlib.Path(__file__).with_name("worker.txt").read_text(), flush=True)
        DONE.touch()
'''
TASK = """\
import os
from trainer import turns
turns.begin()
import big
print("requirements", big.REQUIREMENTS)
from trainer import say, values
from trainer.parts import NAME
say.say()
print("value", values.VALUE, NAME, flush=True)
for place in ("/tmp/left", "/dev/shm/left", "/app/trainer/made.txt", "/root/left"):
    open(place, "w").close()
os.makedirs("/tmp/folder/inner", exist_ok=True)
turns.end()
"""
FILES = {
    "requirements.txt": "numpy==1.26.0\n",
    "trainer/task.py": TASK,
    "trainer/turns.py": TURNS,
    "trainer/worker.txt": "nothing",
    "trainer/say.py": SAY,
    "trainer/values.py": "VALUE = 0\n",
    "trainer/parts/__init__.py": "from trainer.parts.one import NAME\n",
    "trainer/parts/one.py": "NAME = 'one'\n",
}


class Edits:
    """Edits of a folder, each another one of the kinds below; `last` names the kind."""

    def __init__(self, folder: Path, seed: str) -> None:
        self._folder, self._random = folder, random.Random(seed)
        self._count = 0
        self.last = ""
        self._kinds: dict[str, Callable[[], None]] = {
            "value": lambda: self._write("values.py", f"VALUE = {self._count % 10}\n# {self._count:5}\n"),
            "same size": lambda: self._write("values.py", f"VALUE = {self._count:7}\n"),
            "syntax": lambda: self._write("values.py", f"VALUE = ({self._count}\n"),
            "error": lambda: self._write("values.py", f"VALUE = {self._count} / 0\n"),
            "exit": lambda: self._write("values.py", f"import sys\nsys.exit({self._count % 200})\n"),
            "missing": lambda: self._write("values.py", f"import nothing_{self._count}\n"),
            "rename": self._rename,
            "new": self._add,
            "delete": self._delete,
            "init": lambda: self._write("parts/__init__.py", f"NAME = 'init {self._count}'\n"),
            "folder": self._add_package,
            "data": lambda: self._write("data/numbers.txt", "1 " * self._random.randrange(1, 5000)),
            "shadow": lambda: self._write("../trainer/random.py", f"X = {self._count}\n"),
            "task": lambda: self._write("task.py", f"{TASK}print('more {self._count}')\n"),
            "variables": lambda: self._write("task.py", f"import os\nos.environ['MODE'] = '{self._count}'\n{TASK}"),
            "computed": lambda: self._write("task.py", f"import os\nos.environ.update(A=str({self._count}))\n{TASK}"),
            "spec": self._change_spec,
            "requirement": lambda: self._write("../requirements.txt", f"numpy==1.26.{self._count}\n"),
            "of one role": lambda: self._write("worker.txt", f"{self._count}"),
        }

    @property
    def _trainer(self) -> Path:
        return self._folder / "trainer"

    def make(self) -> str:
        """Makes the next edit; returns its kind."""
        self._count += 1
        if self._random.random() < 0.35:  # people mend what they broke
            self._write("values.py", f"VALUE = {self._count}\n")
        self.last = self._random.choice(sorted(self._kinds))
        self._kinds[self.last]()
        self._write("count.txt", f"{self._count}\n")
        write_requirements_lock(self._folder)
        return self.last

    def _write(self, name: str, text: str) -> None:
        path = self._trainer / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode())
        path.chmod(0o644)

    def _rename(self) -> None:
        name = f"part_{self._count}"
        for path in (self._trainer / "parts").glob("*.py"):
            if path.name != "__init__.py":
                path.unlink()
        self._write(f"parts/{name}.py", f"NAME = '{name}'\n")
        self._write("parts/__init__.py", f"from trainer.parts.{name} import NAME\n")

    def _add(self) -> None:
        self._write(f"new_{self._count}.py", "X = 1\n")
        self._write("values.py", f"from trainer import new_{self._count}\nVALUE = new_{self._count}.X\n")

    def _add_package(self) -> None:
        for name in ("a", "a/b"):
            self._write(f"deep_{self._count}/{name}/__init__.py", "")
        self._write(f"deep_{self._count}/a/b/c.py", "X = 3\n")
        self._write("values.py", f"from trainer.deep_{self._count}.a.b.c import X as VALUE\n")

    def _delete(self) -> None:
        made = [path for path in self._trainer.iterdir() if path.name.startswith(("new_", "deep_", "data", "random"))]
        for path in made[: self._random.randrange(1, 4)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _change_spec(self) -> None:
        path = self._folder / "image.yaml"
        spec = json.loads(path.read_text())
        spec["env"] = {"MODE": str(self._count)}
        write_atomic(path, json.dumps(spec).encode())


def write_requirements_lock(folder: Path) -> None:
    """Locks what requirements.txt names, as `imgtool lock` would."""
    write_lock(folder, (folder / "requirements.txt").read_text().strip().removeprefix("numpy=="))


def copy_changes(source: Path, target: Path) -> None:
    """Makes a folder's files those of another one, writing only those that differ, and deleting the rest."""
    wanted = {path.relative_to(source): path for path in source.rglob("*") if path.is_file()}
    for path in list(target.rglob("*")):
        if path.is_file() and path.relative_to(target) not in wanted:
            path.unlink()
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_dir() and not (source / path.relative_to(target)).exists():
            path.rmdir()
    for name, path in wanted.items():
        there = target / name
        if not there.exists() or there.read_bytes() != path.read_bytes():
            there.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(there, path.read_bytes())
            there.chmod(0o644)
