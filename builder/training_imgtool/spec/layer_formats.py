"""Which compression of layers a job's target reads: the table, with where each row is from, and the choice.

zstd is the default only where the container runtime is known to read it and nothing is known to need gzip. A service
that streams images may need gzip layers to convert or index; `splice` gives gzip layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from training_imgtool.spec.job import Target
from training_imgtool.spec.model import ImageSpec

SPLICE, ZSTD = "splice", "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What pulls the images of a target, as documents said on 22 November 2026.

    Attributes:
        runtime: its name.
        zstd: whether it reads zstd layers; None if no document says so.
        source: where that is written.
        everywhere: whether it is what every machine of the target has.
    """

    runtime: str
    zstd: bool | None
    source: str
    everywhere: bool = True

    @property
    def problem(self) -> str | None:
        """What speaks against zstd layers, with its source; None where the runtime reads them."""
        if self.zstd:
            return None
        if self.zstd is None:
            return f"{self.runtime} is not known to read layers compressed with zstd"
        return f"{self.runtime} does not read layers compressed with zstd ({self.source})"


_NO_SOURCE = "no source says it"
_CONTAINERD = Reader(runtime="containerd 1.5 or newer", zstd=True, source="containerd 1.5 release notes")
_DOCKER = Reader(
    runtime="Docker 23 or newer", zstd=True, source="Docker Engine 23.0 release notes", everywhere=False
)  # 20.10 is still installed
_ALIBABA = Reader(
    runtime="Alibaba Cloud's image acceleration",
    zstd=False,
    source='alibabacloud.com, "Use an accelerated image": tar and tgz only, not zstd',
)
_GKE_STREAMING = Reader(runtime="GKE's image streaming", zstd=None, source=_NO_SOURCE)

READERS: dict[Target, Reader] = {
    Target.AI_PLATFORM: Reader(runtime="AI Platform Training", zstd=None, source=_NO_SOURCE),
    Target.VERTEX: Reader(runtime="Vertex AI", zstd=None, source=_NO_SOURCE),
    Target.TFJOB: _CONTAINERD,
    Target.JOBSET: _CONTAINERD,
    Target.PODS: _CONTAINERD,
    Target.ECI: _ALIBABA,
    Target.COMPOSE: _DOCKER,
    Target.TF_CONFIG: _DOCKER,
    Target.SKYPILOT: Reader(runtime="the Docker of SkyPilot's machine images", zstd=None, source=_NO_SOURCE),
    Target.SLURM: Reader(runtime="enroot", zstd=None, source=_NO_SOURCE),
}

STREAMING: dict[str, Reader] = {  # the end of a registry's host, for targets whose nodes may stream images from it
    "pkg.dev": _GKE_STREAMING,
    "gcr.io": _GKE_STREAMING,
    "aliyuncs.com": _ALIBABA,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFormat:
    """How an image's layers are compressed, and why."""

    compression: str
    why: str


def reader_of(target: Target, registry: str | None) -> Reader:
    """What pulls the images of `target` from `registry`, such as us-central1-docker.pkg.dev/project/repository."""
    host = (registry or "").partition("/")[0].partition(":")[0]
    streams = (reader for end, reader in STREAMING.items() if host == end or host.endswith((f".{end}", f"-{end}")))
    reader = READERS[target]
    return next(streams, reader) if reader.zstd else reader


def layer_format(spec: ImageSpec) -> LayerFormat:
    """The compression of a spec's layers.

    Only the spec decides: not the machine, `--registry` or `--target`. So every machine makes the same images.
    """
    if spec.compression != "auto":
        return LayerFormat(compression=spec.compression, why="the spec says so")
    reader = reader_of(spec.job.target, spec.registry)
    if reader.problem:
        return LayerFormat(compression=SPLICE, why=reader.problem)
    if not reader.everywhere:
        return LayerFormat(compression=SPLICE, why=f"zstd needs {reader.runtime} ({reader.source})")
    return LayerFormat(compression=ZSTD, why=f"{reader.runtime} reads it ({reader.source})")
