"""Resolves the Debian packages of a `system` stage for the lock, and makes the stage's layer from them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from imgtool_debian_layers import BaseSystem
from training_imgtool.base.errors import FieldError, InputError, NeedsEngineError
from training_imgtool.base.progress import Done, Note, Outcome, Step
from training_imgtool.base.reference import Digest, apply_mirror, parse_reference
from training_imgtool.model.lock import LockedDebian, Variant
from training_imgtool.model.recipe.apt_step import CUDA_LIBRARY_PATH, apt_packages
from training_imgtool.model.recipe.recipe import Recipe
from training_imgtool.model.spec import ImageSpec
from training_imgtool.oci.direct.debian_layer import OpenedLibraries
from training_imgtool.oci.layers.codecs import Compression
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.plan.debian_layer import LayerMaker
from training_imgtool.plan.debian_packages import read_system, resolve_packages

if TYPE_CHECKING:
    from training_imgtool.oci.machine import Machine


def open_layer(recipe: Recipe, machine: Machine, cache: LayerCache, compression: Compression) -> LayerMaker:
    """Returns a LayerMaker for a recipe's locked packages; it reads the base and fetches packages only if necessary."""
    return LayerMaker(
        base_digest=recipe.base.digest,
        locked=recipe.debian or LockedDebian(requested=()),
        platform=recipe.platform,
        read_system=partial(read_base_system, recipe.base, machine, use_cache=cache.use_cache),
        settings=machine.settings,
        progress=machine.progress,
        cache=cache,
        compression=compression,
    )


def lock_debian(variant: Variant, base_digest: str, *, spec: ImageSpec, machine: Machine) -> LockedDebian | None:
    """Returns the packages that apt installs for a variant's `system` stage; None if the stage has no packages.

    This function also makes the layer, as a test. If imgtool cannot make the layer, the result contains the reason.

    Raises:
        FieldError: the base's archives have no such package.
        TemporaryError: an archive does not answer.
        VerificationError: a package or the base does not match its digest.
    """
    requested = apt_packages(variant, (*spec.system_packages, *variant.apt))
    if not requested:
        return None
    subject = f"packages {variant.name}"
    machine.progress(Step(subject, f"{len(requested)} Debian packages"))
    try:
        locked = _resolve(variant, requested, base_digest, spec, machine)
    except NeedsEngineError as error:
        machine.progress(Note(f"{variant.name}: an engine installs the Debian packages: {error}"))
        return LockedDebian(requested=requested, engine=error.message)
    except InputError as error:
        if spec.template or any(role.template for role in spec.roles.values()):  # these lines may add an archive
            return LockedDebian(requested=requested, engine=error.message)
        raise FieldError(error.message, field="system_packages", hint=error.hint) from error
    machine.progress(Done(subject, Outcome.LOCKED, f"{len(locked.packages)} Debian packages"))
    return locked


def _resolve(
    variant: Variant, requested: tuple[str, ...], base_digest: str, spec: ImageSpec, machine: Machine
) -> LockedDebian:
    """Resolves the packages and makes their layer; raises NeedsEngineError where an engine has to install them."""
    settings = machine.settings
    if variant.python_from == "deadsnakes":
        raise NeedsEngineError("Python comes from the deadsnakes archive, whose key the stage fetches")
    base = apply_mirror(parse_reference(variant.base).repository, settings.mirrors).digest(base_digest)
    system = read_base_system(base, machine)
    locked = LockedDebian(requested=requested, packages=resolve_packages(system, requested, spec.platform, settings))
    maker = LayerMaker(
        base_digest=base_digest,
        locked=locked,
        platform=spec.platform,
        read_system=lambda: system,
        settings=settings,
        progress=machine.progress,
        cache=LayerCache(settings.cache / "layers"),
        compression=Compression(spec.compression),
    )
    cuda_base = variant.cuda is not None and spec.cuda_from == "base"
    libraries = variant.libraries if cuda_base else ()
    maker.layer("", OpenedLibraries(libraries, CUDA_LIBRARY_PATH if cuda_base else ""))
    return locked


def read_base_system(base: Digest, machine: Machine, *, use_cache: bool = True) -> BaseSystem:
    """Reads the Debian system of a base from its layers, or with `use_cache` from the cache."""
    registry = machine.registries.at(base.repository)
    layers = registry.manifest(base).layers
    return read_system(layers, partial(registry.blob, base.repository), machine.settings, use_cache=use_cache)
