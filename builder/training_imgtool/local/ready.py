"""The options of a run, and the cluster of containers that is ready to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from training_imgtool.local.checkpoints import Checkpoint
from training_imgtool.local.limits import Share
from training_imgtool.local.owner import Owner
from training_imgtool.local.rehearsal import Kill
from training_imgtool.local.replicas import Cluster, Service
from training_imgtool.local.summary import RunImage
from training_imgtool.model.spec import ImageSpec, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of `imgtool run`; None leaves the choice to the spec."""

    service: Service | None = None
    workers: int | None = None
    ps: int | None = None
    processes: int | None = None
    args: tuple[str, ...] | None = None
    job_dir: Path | None = None
    kills: tuple[Kill, ...] = ()
    restart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A cluster that is ready to start, because its images are in the engine."""

    run: str
    spec: ImageSpec
    cluster: Cluster
    images: Mapping[Role, RunImage]
    shares: Mapping[str, Share]
    job_dir: Path
    user: str  # UID:GID of the programs; empty for the images' own
    kills: tuple[Kill, ...]
    restart: bool  # restart as the service does, even if the program fails before its first checkpoint
    checkpoint: Checkpoint | None  # the newest checkpoint before the run
    owner: Owner
    notes: tuple[str, ...]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # values of job.secrets, by variable

    def names_home(self, role: Role) -> bool:
        """Tells whether the spec sets HOME for the role's program."""
        return "HOME" in {**self.spec.env, **self.spec.roles[role].env}
