"""A folder with a spec, and an index on loopback that has a TensorFlow of a few bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.simple_index import SimpleIndex, serving, tiny_wheel
from training_imgtool.base.progress import Done, Event, Step
from training_imgtool.base.settings import Settings
from training_imgtool.model.load import SpecFile, load
from training_imgtool.model.lock import Lock
from training_imgtool.resolve.lock.update import make_lock
from training_imgtool.resolve.versions.matrix import Matrix, load_matrix

DIGEST = "sha256:" + "a" * 64
SPEC = """\
name: mnist
tensorflow: "2.15.1"
roles:
  master: {gpus: {type: NVIDIA_TESLA_V100}}
  ps: {}
"""


class Events(list[Event]):
    """A Progress that keeps what it is told."""

    def __call__(self, event: Event) -> None:
        self.append(event)


@dataclass
class Place:
    """A folder with a spec, an index, and the settings that lead to it."""

    folder: Path
    index: SimpleIndex
    settings: Settings
    matrix: Matrix

    def spec(self, text: str, requirements: str | None = None) -> SpecFile:
        """Writes a spec, with requirements when given, and reads it."""
        (self.folder / "trainer").mkdir(exist_ok=True)
        (self.folder / "trainer/task.py").write_text("")
        (self.folder / "trainer/__init__.py").write_text("")
        if requirements is not None:
            (self.folder / "requirements.txt").write_text(requirements)
            text += "requirements: requirements.txt\n"
        (self.folder / "image.yaml").write_text(text)
        return load(self.folder / "image.yaml")

    def lock(self, spec_file: SpecFile, progress: Events | None = None) -> Lock:
        """The spec's lock, the bases' digests being `DIGEST`; what begins on the way also ends."""
        events = Events() if progress is None else progress
        lock = make_lock(spec_file, self.matrix, lambda _: DIGEST, self.settings, events)
        begun, ended = ({one.subject for one in events if isinstance(one, kind)} for kind in (Step, Done))
        assert begun <= ended
        return lock


def add(index: SimpleIndex, name: str, version: str, requires: tuple[str, ...] = (), *, python: str = "") -> None:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    index.add(name, file, tiny_wheel(name.replace("-", "_"), version, requires=requires, python=python))


@contextmanager
def make_place(tmp_path: Path) -> Iterator[Place]:
    """Makes the folder and serves the index."""
    index = SimpleIndex()
    for name in ("tensorflow", "tensorflow-cpu"):
        add(index, name, "2.15.1", ("numpy>=1.23.5,<2", "setuptools"))
    add(index, "tensorflow", "2.15.0")
    add(index, "dumb-init", "1.2.5.post1")
    for name, version in [
        ("numpy", "1.26.4"),
        ("numpy", "2.1.0"),
        ("setuptools", "80.1"),
        ("setuptools", "82.0"),
        ("nvidia-cuda-nvcc-cu12", "12.2.140"),
        ("pip", "26.0"),
        ("pip", "24.0"),
        ("scipy", "1.11.4"),
    ]:
        add(index, name, version)
    add(index, "hub", "1.0", ("tensorflow>=2.3",))
    folder = tmp_path / "spec"
    folder.mkdir()
    with serving(index):
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "UV_INDEX_URL": index.url,
            "UV_CACHE_DIR": str(tmp_path / "uv"),
            "UV_NO_CONFIG": "1",
            "UV_HTTP_RETRIES": "0",
        }
        settings = Settings(cache=tmp_path / "cache", mirrors={}, docker_config=tmp_path, proxies={}, environ=environ)
        yield Place(folder, index, settings, load_matrix())
