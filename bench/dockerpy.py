"""Plain docker-py: build and push one role after the other, as training launchers do."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench import project
from bench.contenders import Track, before_packages, copied, mark_packages
from bench.processes import Usage, run
from bench.project import Variation
from bench.world import Engine

_SCRIPT = """
import sys, docker
folder, repository, *roles = sys.argv[1:]
client = docker.from_env(timeout=600)
def follow(events):
    for event in events:
        if "error" in event:
            sys.exit(event["error"])
for role in roles:
    follow(client.api.build(path=folder + "/context", dockerfile=folder + "/" + role + ".Dockerfile",
                            tag=repository + ":" + role, rm=True, decode=True))
    follow(client.api.push(repository, tag=role, stream=True, decode=True))
"""


@dataclass
class DockerPy:
    """See the module."""

    track: Track
    engine: Engine
    name: str
    _folder: Path = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self._folder = self.track.world.folder / f"dockerpy-{self.track.name}"

    def take(self, variation: Variation) -> None:
        rendered = self.track.projects.rendered(variation)
        copied(rendered, self._folder, self.track.world.registry.host, self.track.host)

    def edit(self, mark: str) -> None:
        project.edit(self._folder / "context" / "code/trainer", mark)

    def new_repository(self) -> None:
        self._number += 1

    def new_machine(self) -> None:
        self.engine.do("system", "prune", "-af")

    def new_packages(self, mark: str) -> None:
        rendered = (self._folder / f"{self.track.roles[0]}.Dockerfile").read_text()
        (self._folder / "before").write_text(before_packages(rendered))
        command = [str(self.engine.docker), "build", "--quiet", "-f", "before", "context"]
        run(command, environ=self.engine.environ | {"DOCKER_BUILDKIT": "0"}, folder=self._folder)
        mark_packages(self._folder, mark)

    def build(self, roles: tuple[str, ...], *, watch: bool = False) -> Usage:
        repository = f"{self.track.host}/dockerpy-{self.track.name}-{self._number}"
        command = [sys.executable, "-c", _SCRIPT, str(self._folder), repository, *roles]
        return run(command, environ=self.engine.environ, folder=self._folder, watch=watch)

    def service_seconds(self) -> float:
        return self.engine.seconds()
