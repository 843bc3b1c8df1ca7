"""Whether what runs a target's images can read their layers: the table is `spec.layer_formats`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from training_imgtool.core.reference import Digest, Tag
from training_imgtool.jobs.images.names import parse_image
from training_imgtool.jobs.model import Finding, Path, Severity, get
from training_imgtool.spec.layer_formats import READERS
from training_imgtool.spec.job import Target

LayerTypes = Callable[[Tag | Digest], Sequence[str] | None]
_KINDS = {"TFJob": Target.TFJOB, "JobSet": Target.JOBSET, "ImageCache": Target.ECI, "Pod": Target.PODS}
_KEYS = {"image", "imageUri", "executorImageUri"}
_ECI_ANNOTATION = "k8s.aliyun.com/"


def layer_findings(data: Any, layer_types: LayerTypes) -> Iterator[Finding]:
    """What a registry says about the images of a job file.

    Args:
        data: one document of the file.
        layer_types: the media types of an image's layers, or None where the registry has no such image.
    """
    target = _find_target(data)
    problem = READERS[target].problem if target else None
    for path, image in _images(data, ()):
        reference, _ = parse_image(image, path)
        if reference is None:
            continue
        types = layer_types(reference)
        if types is None:
            message = f"{image} is not in the registry: the job fails when it starts"
            yield Finding(path=path, message=message, severity=Severity.WARNING)
        elif problem and any(kind.endswith("+zstd") for kind in types):
            hint = "build it with `compression: splice` or gzip"
            yield Finding(path=path, message=problem, hint=hint, severity=Severity.WARNING)


def _find_target(data: Any) -> Target | None:
    if not isinstance(data, dict):
        return None
    if "trainingInput" in data:
        return Target.AI_PLATFORM
    if {"workerPoolSpecs", "jobSpec", "trialJobSpec"} & data.keys():
        return Target.VERTEX
    if "services" in data:
        return Target.COMPOSE
    annotations = get(data, "metadata", "annotations")
    if isinstance(annotations, dict) and any(str(key).startswith(_ECI_ANNOTATION) for key in annotations):
        return Target.ECI
    return _KINDS.get(str(data.get("kind")))


def _images(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every image that a document names, in its order."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _KEYS and isinstance(item, str):
                yield (*path, key), item
            elif key == "images" and isinstance(item, list):
                yield from (((*path, key, index), text) for index, text in enumerate(item) if isinstance(text, str))
            else:
                yield from _images(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _images(item, (*path, index))
