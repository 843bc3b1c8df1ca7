"""The results of the Python interface: frozen values that you can pickle and compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar


class _OfRole(Protocol):
    @property
    def role(self) -> str: ...


Result = TypeVar("Result", bound=_OfRole)


@dataclass(frozen=True, slots=True)
class ByRole(Mapping[str, Result], Generic[Result]):
    """Results by role: an immutable mapping that you can pickle.

    For a spec with several platforms, the mapping contains the results for the first platform.
    """

    results: tuple[Result, ...]

    def __getitem__(self, role: str) -> Result:
        for result in self.results:
            if result.role == role:
                return result
        raise KeyError(role)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(result.role for result in self.results))

    def __len__(self) -> int:
        return len(set(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedImage:
    """An image that a push would find or make.

    Attributes:
        role: `master`, `worker`, `ps` or `evaluator`.
        tag: the tag with the content key; None if neither the spec nor the machine names a registry.
        key: the content key, 64 hexadecimal digits: equal inputs have equal keys.
        framework: the framework's key in the spec, such as `tensorflow`.
        package: its package, such as `tensorflow-cpu`.
        release: its release, such as `2.15.1`.
        python: the minor version of Python.
        cuda: the version of CUDA, or None.
        base: the base image, by digest.
        wheel_bytes: the size of the wheels to download.
        needs_engine: why a stage of the image needs an engine; None if imgtool makes all stages.
    """

    role: str
    tag: str | None
    key: str
    framework: str
    package: str
    release: str
    python: str
    cuda: str | None
    base: str
    wheel_bytes: int
    needs_engine: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a push would make.

    Attributes:
        name: the spec's name.
        platform: the first platform, such as `linux/amd64`.
        warnings: warnings about the chosen versions.
        images: the images by role.
    """

    name: str
    platform: str
    warnings: tuple[str, ...]
    images: ByRole[PlannedImage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that the registry confirmed.

    Attributes:
        role: `master`, `worker`, `ps` or `evaluator`.
        reference: `REPOSITORY@sha256:DIGEST`, which a job file names.
        digest: `sha256:DIGEST`.
        outcome: `found` (the registry had it), `appended` (imgtool made it) or `built` (an engine did).
        seconds: the time that imgtool took for it.
    """

    role: str
    reference: str
    digest: str
    outcome: str
    seconds: float

    def __str__(self) -> str:
        return self.reference


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedImage:
    """An image that matches the lock, the base and the code.

    Attributes:
        role: `master`, `worker`, `ps` or `evaluator`.
        reference: `REPOSITORY@sha256:DIGEST`.
        checks: the finding of each check, by the check's name.
    """

    role: str
    reference: str
    checks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A replica of a run: `seconds` from the first start to the end, `peak_bytes` of memory, sampled every second."""

    name: str
    role: str
    exit_code: int | None
    seconds: float
    peak_bytes: int | None
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that succeeded.

    Attributes:
        job_dir: the folder for the trainers' results.
        checkpoint: the newest checkpoint below job_dir; None if there is none.
        seconds: the time from the first start to the end.
        kept: what job_dir contains, by the names of its files: `result`, `logs` or `nothing`; `lost` when a model or
            checkpoint was deleted with a container and job_dir has less.
        lost: by replica, the files that its program wrote elsewhere in its container, which was deleted.
        replicas: the replicas in the order of the cluster.
    """

    job_dir: Path
    checkpoint: str | None
    kept: str
    lost: Mapping[str, tuple[str, ...]]
    seconds: float
    replicas: tuple[Replica, ...]
