"""The targets, which are the formats of job files. The rest of imgtool reads the facts about a target from its row.

Each target has a row in `data/targets.toml`, and a module of the same name in `jobs/targets/`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cache
from typing import Any

from training_imgtool.base.resources import data_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The container runtime that pulls the images of a target.

    Attributes:
        name: the runtime's name.
        zstd: whether it reads zstd layers; None if no document says so.
        source: the document that says so.
        is_old: whether `name` means only old versions, so that most machines have a newer one.
    """

    name: str
    zstd: bool | None = None
    source: str = "no source says it"
    is_old: bool = False

    @property
    def problem(self) -> str | None:
        """Why the runtime may not read zstd layers, and where that is documented; None if it reads them."""
        if self.zstd:
            return None
        if self.zstd is None:
            return f"{self.name} is not known to read layers compressed with zstd"
        return f"{self.name} does not read layers compressed with zstd ({self.source})"


class JobDir(Enum):
    """How a target passes `job.job_dir` to the program if the arguments do not contain it."""

    NAMED = "the service has a field for it"
    MOUNTED = "a folder is mounted into the containers"
    UNUSED = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One target.

    Attributes:
        job: the keys of `job` that it accepts, besides those that all targets accept.
        role: the keys of a role that it accepts, besides those that all targets accept.
        scheduling: the keys of `job.scheduling` that it accepts.
        runtime: the container runtime that pulls its images.
        job_dir: how it handles `job.job_dir`.
        volumes: the kinds of `job.volumes` that it mounts.
        grace: the time from SIGTERM to SIGKILL, if it does not accept `job.grace_period`.
        kinds: the kinds of Kubernetes objects in its files, each with its apiVersion.
        signs: keys at the top of a document by which imgtool recognises the target.
        rules: the source of the rules for its files, for `lint`.
        checked_by: what checks its files if its module has no `judge`.
        framework: the key of the only framework that it supports; empty if it supports all.
        away: whether its jobs never run on this machine.
        always_chief: whether its clusters have a separate chief, so that without a master, worker 0 becomes the chief.
    """

    job: frozenset[str]
    role: frozenset[str]
    runtime: Runtime
    scheduling: frozenset[str] = frozenset()
    job_dir: JobDir = JobDir.UNUSED
    volumes: frozenset[str] = frozenset()
    grace: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    signs: tuple[str, ...] = ()
    rules: str = ""
    checked_by: str = ""
    framework: str = ""
    away: bool = False
    always_chief: bool = False


class Target(StrEnum):
    """A job file's format."""

    AI_PLATFORM = "ai-platform"
    VERTEX = "vertex"
    TFJOB = "tfjob"
    JOBSET = "jobset"
    TRAINJOB = "trainjob"
    PODS = "pods"
    ECI = "eci"
    COMPOSE = "compose"
    TF_CONFIG = "tf-config"
    SKYPILOT = "skypilot"
    SLURM = "slurm"

    @property
    def row(self) -> Row:
        """The facts about the target."""
        return _read_rows()[self]


def find_streaming(host: str) -> Runtime | None:
    """Returns the runtime that streams images to a cloud's nodes from the registry at `host`; None if none does."""
    table = _read_table()
    ends = (name for end, name in table["streaming"].items() if host == end or host.endswith((f".{end}", f"-{end}")))
    return next((Runtime(**table["runtimes"][name]) for name in ends), None)


@cache
def _read_table() -> dict[str, Any]:
    return tomllib.loads(data_file("targets.toml").read_text(encoding="utf-8"))


@cache
def _read_rows() -> dict[str, Row]:
    return {name: _make_row(**keys) for name, keys in _read_table()["targets"].items()}


def _make_row(*, runtime: str, job_dir: str = "UNUSED", signs: tuple[str, ...] = (), **keys: Any) -> Row:
    keys |= {name: frozenset(_expand(keys.get(name, ()))) for name in ("job", "role", "scheduling", "volumes")}
    return Row(
        runtime=Runtime(**_read_table()["runtimes"][runtime]), job_dir=JobDir[job_dir], signs=tuple(signs), **keys
    )


def _expand(words: Iterable[str]) -> Iterator[str]:
    """Yields the words of a list; replaces a word `@NAME` by the words of the list NAME."""
    for word in words:
        if word.startswith("@"):
            yield from _expand(_read_table()["lists"][word.removeprefix("@")])
        else:
            yield word
