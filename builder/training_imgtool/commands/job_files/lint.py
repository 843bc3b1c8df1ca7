"""`lint --images`: what the registries say about the images of a job file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from training_imgtool.core.errors import RegistryRefusedError
from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.settings import Settings
from training_imgtool.jobs.lint import Message, lint_file
from training_imgtool.registry.connect import Registries, connect

_PLATFORM = "linux/amd64"  # of every machine that the targets offer with TensorFlow's wheels


def lint_with_images(
    path: Path, settings: Settings, progress: Progress, *, allow_unknown: bool, region: str | None, strict: bool
) -> tuple[Message, ...]:
    """Checks a file as `jobs.lint.lint_file`, and asks the registries for its images.

    An image that is not there, or not for linux/amd64, is a warning, and so are layers that the target cannot read.

    Raises:
        InputError: the file cannot be read.
        CredentialsError, RegistryRefusedError, TemporaryError: a registry gives no answer.
    """
    with connect(settings, progress) as registries:

        def layer_types(reference: Tag | Digest) -> Sequence[str] | None:
            return _layer_types(reference, registries)

        return lint_file(path, allow_unknown=allow_unknown, region=region, strict=strict, layer_types=layer_types)


def _layer_types(reference: Tag | Digest, registries: Registries) -> tuple[str, ...] | None:
    repository = registries.source(reference.repository)
    there = repository.digest(reference.digest) if isinstance(reference, Digest) else repository.tag(reference.name)
    registry = registries.at(repository)
    manifest = registry.find_manifest(there)
    if manifest is not None and manifest.is_index:
        try:
            manifest = registry.manifest(there, _PLATFORM)
        except RegistryRefusedError:
            manifest = None
    return tuple(layer.media_type for layer in manifest.layers) if manifest else None
