"""Which compression of layers a job's target reads: the table, with where each row is from, and the choice.

zstd is the default only where the container runtime is known to read it and nothing is known to need gzip. A service
that streams images may need gzip layers to convert or index; `splice` gives gzip layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from training_imgtool.spec.model import ImageSpec, Target

SPLICE, ZSTD = "splice", "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What pulls the images of a target.

    Attributes:
        zstd: True if it reads zstd layers, False if it is known not to (or a service in front of it does not), None if
            no document says so.
        why: a phrase for `show` and `lint`.
        source: where that is written.
    """

    zstd: bool | None
    why: str
    source: str


_CONTAINERD = Reader(
    zstd=True,
    why="containerd 1.5 and CRI-O 1.17 read zstd, and Kubernetes has required newer ones since 1.24",
    source="https://github.com/containerd/containerd/releases/tag/v1.5.0",
)
_VERTEX = Reader(
    zstd=None,
    why="Google's documentation does not say that custom training reads zstd",
    source="https://cloud.google.com/vertex-ai/docs/training/containers-overview",
)

READERS: dict[Target, Reader] = {
    Target.AI_PLATFORM: _VERTEX,
    Target.VERTEX: _VERTEX,
    Target.TFJOB: _CONTAINERD,
    Target.JOBSET: _CONTAINERD,
    Target.PODS: _CONTAINERD,
    Target.ECI: Reader(
        zstd=False,
        why="image acceleration on ACR, ECI and PAI takes tar and tgz layers only",
        source="https://www.alibabacloud.com/help/en/pai/user-guide/use-accelerated-image-in-pai",
    ),
    Target.COMPOSE: Reader(
        zstd=None,
        why="Docker Engine reads zstd since 23.0, and the engine's version is not known",
        source="https://docs.docker.com/engine/release-notes/23.0/",
    ),
    Target.TF_CONFIG: Reader(zstd=None, why="what runs the image is not known", source=""),
    Target.SKYPILOT: Reader(
        zstd=None,
        why="SkyPilot's machines bring a Docker Engine of an unknown version; it reads zstd since 23.0",
        source="https://docs.docker.com/engine/release-notes/23.0/",
    ),
    Target.SLURM: Reader(
        zstd=None,
        why="enroot imports layers with the programs of the node",
        source="https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md",
    ),
}

STREAMING: dict[str, Reader] = {  # the end of a registry's host, for targets whose nodes may stream images from it
    "pkg.dev": Reader(
        zstd=None,
        why="GKE streams images from Artifact Registry, and its documentation does not say that it streams zstd layers",
        source="https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming",
    ),
    "gcr.io": Reader(
        zstd=None,
        why="GKE streams images from gcr.io, and its documentation does not say that it streams zstd layers",
        source="https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming",
    ),
    "aliyuncs.com": READERS[Target.ECI],
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
    return LayerFormat(compression=ZSTD if reader.zstd else SPLICE, why=f"{spec.job.target}: {reader.why}")
