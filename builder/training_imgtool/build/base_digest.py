"""Base images in a registry: which digest a name stands for now, for one platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_imgtool.core.errors import RegistryRefusedError, TemporaryError
from training_imgtool.core.reference import Digest, Tag, parse_reference
from training_imgtool.registry.manifests import require_platform

if TYPE_CHECKING:
    from training_imgtool.registry.connect import Registries


def digest_of(reference: str, platform: str, registries: Registries) -> str:
    """The digest (`sha256:…`) of the image that `reference` names for `platform`, read through the mirrors.

    An index is followed to its child, so that every builder sees the same image. Raises RegistryRefusedError
    when there is no such image, InputError when it is for another platform, and what reading a manifest raises.
    """
    name = parse_reference(reference)
    source = registries.source(name.repository)
    there: Tag | Digest = source.tag(name.name) if isinstance(name, Tag) else source.digest(name.digest)
    try:
        there_now = registries.at(source).head(there)
    except TemporaryError as error:
        hint = "; ".join(filter(None, (error.hint, "IMGTOOL_MIRRORS names a registry that has it")))
        raise TemporaryError(f"base image {there}: {error.message}", hint=hint, details=error.details) from error
    if there_now is None:
        raise RegistryRefusedError(
            f"base image {there}: the registry has no such image",
            hint="see `imgtool compat` for bases, give another `base:`, or a mirror that has it with IMGTOOL_MIRRORS",
        )
    manifest = registries.at(source).manifest(there, platform)
    require_platform(registries.at(source).read(there.repository, manifest.config), platform, f"base image {there}")
    return manifest.digest
