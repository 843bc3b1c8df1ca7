"""Only the wheels of the lock, four at a time, by curl: as fast as wheels from the index can be."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from bench.contenders import Track
from bench.processes import Usage, run
from bench.project import BASE, ROLES, Variation


@dataclass
class Download:
    """See the module."""

    track: Track
    name: str = "curl, the wheels alone"
    _folder: Path = field(init=False)
    _urls: tuple[str, ...] = ()

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
        self._urls = self._urls or wheel_urls(self.track)
        lines = [f'url = "{url}"\noutput = "{url.rpartition("/")[2]}"' for url in self._urls]
        (self._folder / "list").write_text("\n".join(lines) + "\n")

    def build(self, roles: tuple[str, ...] = ROLES, *, watch: bool = False) -> Usage:  # noqa: ARG002 all the wheels
        command = ["curl", "--fail", "--silent", "--show-error", "--parallel", "--parallel-max", "4", "-K", "list"]
        return run(command, environ=os.environ, folder=self._folder, watch=watch)

    def wheel_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("*.whl"))

    def service_seconds(self) -> float:
        return 0.0


def wheel_urls(track: Track) -> tuple[str, ...]:
    """Where the index has the wheels of the lock, the largest first; imgtool keeps that beside each wheel."""
    from builder.lock import read_lock

    wheels = [
        wheel for locked in read_lock(track.projects.spec(BASE) / "image.lock").variants for wheel in locked.wheels
    ]
    track.projects.rendered(BASE)  # fetches them
    places = [
        track.projects.cache / "wheels" / wheel.sha256[:2] / wheel.sha256 / "url"
        for wheel in sorted(wheels, key=lambda wheel: -wheel.size)
    ]
    return tuple(place.read_text().partition("#")[0].strip() for place in places)
