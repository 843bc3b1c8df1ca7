"""`docker buildx bake --push`, on an Engine of our own, with the Dockerfiles that `imgtool render -o` writes.

On an Engine whose BuildKit knows it they are improved by hand: COPY --link, so that layers do not depend on each other;
the shared stages as one target that the roles build on, so that the wheels go to the daemon once; wheels mounted
instead of copied; WORKDIR before the code, so that a changed line merges no file system; no provenance; no export of
the shared target; no unpacking into the Engine's own store, which Engines before 29 do nonetheless
(https://github.com/moby/moby/pull/51493; a quarter of a cold build). For the rows on a machine without state the cache of the last push lies inline in the
images; elsewhere it does not, because looking for it takes time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from bench import project
from bench.contenders import Track, before_packages, copied, mark_packages
from bench.processes import FailedError, Usage, run
from bench.project import Variation
from bench.world import Engine

SHARED = "packages"


@dataclass
class Bake:
    """See the module."""

    track: Track
    engine: Engine
    name: str
    inline_cache: bool = False
    kind: str = "bake"  # in the names of folders and repositories
    context: str = "context"  # the folder's name
    _folder: Path = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self._folder = self.track.world.folder / f"{self.kind}-{self.engine.group.name}-{self.track.name}"

    def take(self, variation: Variation) -> None:
        rendered = self.track.projects.rendered(variation)
        copied(rendered, self._folder, self.track.world.registry.host, self.track.host)
        if self.context != "context":
            (self._folder / "context").rename(self._folder / self.context)
        self._adapt()
        if self.engine.modern:
            improve(self._folder, self.context, self.track.roles)
        self._write()

    def edit(self, mark: str) -> None:
        project.edit(self._folder / self.context / "code/trainer", mark)

    def new_repository(self) -> None:
        self._number += 1
        if self._folder.exists():
            self._write()

    def new_machine(self) -> None:
        self.engine.do("system", "prune", "-af")
        self.engine.do("builder", "prune", "-af")

    def new_packages(self, mark: str) -> None:
        self.send_context()
        mark_packages(self._folder, mark)

    def build(self, roles: tuple[str, ...], *, watch: bool = False) -> Usage:
        command = [str(self.engine.docker), "buildx", "bake", "--progress=quiet", "--push", *self.options(), *roles]
        # Before 0.16 buildx exports the shared target in spite of its cacheonly (https://github.com/docker/buildx/pull/2583).
        environ = {**self.engine.environ, "BUILDX_NO_DEFAULT_LOAD": "1"}
        return run(command, environ=environ, folder=self._folder, watch=watch)

    def service_seconds(self) -> float:
        return self.engine.seconds()

    def image(self, role: str) -> str:
        """What the role is pushed as."""
        return f"{self.track.host}/{self._folder.name}-{self._number}:{role}"

    def options(self) -> tuple[str, ...]:
        """What `buildx bake` is told beside."""
        return ()

    def _adapt(self) -> None:
        """Changes what was rendered, before it is improved."""

    def _dockerfile(self) -> Path:
        """The one with the step that installs the wheels, or one of them."""
        return self._folder / f"{SHARED if self.engine.modern else self.track.roles[0]}.Dockerfile"

    def send_context(self) -> None:
        """Sends the wheels to the daemon and has it pull the base, before what is timed."""
        (self._folder / "before").write_text(before_packages(self._dockerfile().read_text()))
        command = ["build", "--progress=quiet", "--output=type=cacheonly", "-f", "before"]
        command.append(shared_context(self.context) if self.engine.modern else self.context)
        run([str(self.engine.docker), "buildx", *command], environ=self.engine.environ, folder=self._folder)

    def _write(self) -> None:
        """Gives the targets their names in the repository, and what bake is told beside."""
        path = self._folder / "docker-bake.json"
        document = json.loads(path.read_text())
        for role in self.track.roles:
            target = document["target"][role]
            target |= {"tags": [self.image(role)], "context": self.context}
            target["attest"] = ["type=provenance,disabled=true"]
            if self.inline_cache:
                target |= {"cache-to": ["type=inline"], "cache-from": [f"type=registry,ref={target['tags'][0]}"]}
        path.write_text(json.dumps(document, indent=1))


def shared_context(context: str) -> str:
    """The context's name for the shared target.

    BuildKit keeps what was sent by the name of its folder, and the roles, which ask for the code alone, would make it
    forget the wheels.
    """
    return f"{context}-{SHARED}"


def improve(folder: Path, context: str, roles: tuple[str, ...]) -> None:
    """Rewrites rendered Dockerfiles for a BuildKit of 2022 or later; raises FailedError if roles share no packages."""
    targets = project.bake_targets(folder)
    if len({(folder / f"{role}.Dockerfile").read_text().partition(f"FROM {SHARED} AS")[0] for role in roles}) > 1:
        raise FailedError("the roles of this spec have different packages, and one target cannot be theirs")
    for role in roles:
        path = folder / f"{role}.Dockerfile"
        shared, found, own = path.read_text().partition(f"FROM {SHARED} AS")
        own = own.replace("WORKDIR /app\n", "").replace("COPY code/trainer/", "WORKDIR /app\nCOPY --link code/trainer/")
        path.write_text(found + own)
        targets[role] |= {"contexts": {SHARED: f"target:{SHARED}"}, "output": ["type=image,push=true,unpack=false"]}
    shared = re.sub(
        r"COPY (wheels/\S+?)/ /wheels/\nRUN ", r"RUN --network=none --mount=type=bind,source=\1,target=/wheels ", shared
    )
    shared = shared.replace("COPY --from=wheels", "COPY --link --from=wheels")
    (folder / f"{SHARED}.Dockerfile").write_text(shared)
    (folder / shared_context(context)).symlink_to(context)
    targets[SHARED] = {
        "context": shared_context(context),
        "dockerfile": f"../{SHARED}.Dockerfile",
        "target": SHARED,
        "output": ["type=cacheonly"],
        "attest": ["type=provenance,disabled=true"],
    }
    document = {"group": {"default": {"targets": list(roles)}}, "target": targets}
    (folder / "docker-bake.json").write_text(json.dumps(document))
