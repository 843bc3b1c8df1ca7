"""`imgtool mirror --to`: copies the bases of a lock to a registry of the user's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from training_imgtool.core.errors import UsageError
from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Digest, InvalidReferenceError, Tag, parse_reference, parse_repository
from training_imgtool.core.settings import Settings
from training_imgtool.core.threads import run_all
from training_imgtool.plan import Lock, LockedVariant
from training_imgtool.registry.client import Registry
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.registry.manifests import Manifest, index_body, index_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredBase:
    """A base image, and its copy."""

    base: str
    copy: Digest


def mirror_bases(lock: Lock, settings: Settings, target: str, progress: Progress) -> tuple[MirroredBase, ...]:
    """Copies each base of the lock to `target` (`HOST[:PORT][/PREFIX]`) by digest, and gives the copy the base's tag.

    Where the tag names an image for another platform already, it names an index of both then. Blobs stream from one
    registry to the other; nothing is written to disk. A copy keeps the path of its repository, so that
    IMGTOOL_MIRRORS=HOST=TARGET reads it. Raises what reading and writing a registry raise.
    """
    bases = {locked.variant.base: locked for locked in lock.variants}
    with connect(settings, progress) as registries:
        copies = run_all(
            {name: partial(_mirror_base, locked, registries, target, progress) for name, locked in bases.items()}
        )
    return tuple(MirroredBase(base=name, copy=copy) for name, copy in copies.items())


def _mirror_base(locked: LockedVariant, registries: Registries, target: str, progress: Progress) -> Digest:
    base = parse_reference(locked.variant.base)
    source = registries.source(base.repository)
    copy = parse_repository(f"{target.rstrip('/')}/{base.repository.path}")
    manifest = registries.at(source).manifest(source.digest(locked.base_digest))
    blobs = {blob.digest: blob for blob in (manifest.config, *manifest.layers)}
    subject = f"base {base.repository.path}"
    run_all(
        {
            digest: partial(registries.copy_blob, source, blob, copy, subject=subject, progress=progress)
            for digest, blob in blobs.items()
        }
    )
    reference = copy.digest(locked.base_digest)
    registry = registries.at(copy)
    registry.put_manifest(reference, manifest.media_type, manifest.body, confirm=True)
    if isinstance(base, Tag):
        _tag_copy(registry, copy.tag(base.name), manifest)
    return reference


def _tag_copy(registry: Registry, tag: Tag, copy: Manifest) -> None:
    """Lets a tag name a copy beside the images for other platforms that it names already."""
    present = registry.find_manifest(tag)
    if present is not None and present.digest == copy.digest:
        return
    entry = _entry(registry, tag, copy)
    entries = () if present is None else _entries(registry, tag, present)
    others = [other for other in entries if other.get("platform") != entry["platform"]]
    media_type, body = index_body([*others, entry]) if others else (copy.media_type, copy.body)
    registry.put_manifest(tag, media_type, body)


def _entries(registry: Registry, tag: Tag, present: Manifest) -> tuple[dict[str, Any], ...]:
    if not present.is_index:
        return (_entry(registry, tag, present),)
    return tuple(present.document["manifests"])


def _entry(registry: Registry, tag: Tag, image: Manifest) -> dict[str, Any]:
    return index_entry(image, json.loads(registry.read(tag.repository, image.config)))


def mirror_setting(bases: tuple[MirroredBase, ...], target: str) -> str:
    """The value of IMGTOOL_MIRRORS that reads the copies."""
    hosts = dict.fromkeys(parse_reference(base.base).repository.registry for base in bases)
    return ",".join(f"{host}={target.rstrip('/')}" for host in hosts)


def checked_target(text: str) -> str:
    """The place that `--to` names, without a slash at its end; raises UsageError when no registry has such a name."""
    place = text.rstrip("/")
    try:
        parse_repository(f"{place}/base")
    except InvalidReferenceError as error:
        raise UsageError(f"--to: {error}", hint="give HOST[:PORT][/PATH]") from error
    return place
