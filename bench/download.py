"""Only the wheels of the lock, four at a time, by curl: as fast as wheels from the index can be."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from bench.contenders import Track
from bench.index import SlowIndex
from bench.processes import Usage, run
from bench.project import ROLES, Variation


@dataclass
class Download:
    """See the module."""

    track: Track
    index: SlowIndex
    name: str = "curl, the wheels alone"
    _folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self._folder = self.track.world.folder / f"download-{self.track.name}"

    def take(self, variation: Variation) -> None:
        """There is nothing to take."""

    def edit(self, mark: str) -> None:
        """There is nothing to edit."""

    def new_repository(self) -> None:
        """Nothing is pushed."""

    def new_packages(self, mark: str) -> None:
        """Nothing is made."""

    def new_machine(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        sizes = {name: path.stat().st_size for name, path in self.index.files.items()}
        largest_first = sorted(sizes, key=lambda name: -sizes[name])
        lines = [f'url = "{self.index.url}/files/{name}"\noutput = "{name}"' for name in largest_first]
        (self._folder / "list").write_text("\n".join(lines) + "\n")

    def build(self, roles: tuple[str, ...] = ROLES, *, watch: bool = False) -> Usage:  # noqa: ARG002 all the wheels
        command = ["curl", "--fail", "--silent", "--show-error", "--parallel", "--parallel-max", "4", "-K", "list"]
        return run(command, environ=os.environ, folder=self._folder, watch=watch)

    def wheel_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("*.whl"))

    def service_seconds(self) -> float:
        return 0.0
