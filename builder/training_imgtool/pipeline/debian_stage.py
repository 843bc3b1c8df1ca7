"""Debian packages of a `system` stage: resolved for the lock, and made into the stage's layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.core.errors import FieldError, InputError, NeedsEngineError
from training_imgtool.core.progress import Done, Note, Outcome, Progress, Step
from training_imgtool.core.reference import Digest, apply_mirror, parse_reference
from training_imgtool.core.settings import Settings
from training_imgtool.direct.debian_layer import OpenedLibraries
from training_imgtool.direct.layers.codecs import Compression
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.layers.layers import MTIME
from training_imgtool.dockerfile.apt_step import CUDA_LIBRARY_PATH, apt_packages
from training_imgtool.plan import LockedDebian, RolePlan, Variant
from training_imgtool.spec.model import ImageSpec

if TYPE_CHECKING:
    from training_imgtool.debian.base_system import BaseSystem
    from training_imgtool.debian.layer import LayerMaker
    from training_imgtool.debian.store import PackageStore
    from training_imgtool.registry.connect import Registries

_ARCHITECTURES = {"linux/amd64": "amd64", "linux/arm64": "arm64"}


def open_layer(
    plan: RolePlan,
    settings: Settings,
    cache: LayerCache,
    compression: Compression,
    progress: Progress,
) -> LayerMaker:
    """Opens what makes the layer of a role's locked packages; it reads the base and fetches packages only when it must.

    Raises NeedsEngineError for a platform whose packages imgtool does not know.
    """
    read = partial(read_base_system, plan.base, settings, progress)
    store = _open_store(read, settings, progress)
    locked = plan.locked.debian or LockedDebian(requested=())
    return _make_maker(plan.base, locked, plan.platform, read, settings, cache=cache, packing=compression, store=store)


def _open_store(read: Callable[[], BaseSystem], settings: Settings, progress: Progress) -> PackageStore:
    from training_imgtool.debian.archives import list_archives
    from training_imgtool.debian.store import PackageStore

    own = LayerCache(settings.cache / "layers")
    return PackageStore(own, settings, lambda: list_archives(read(), settings), progress)


def _name_base(variant: Variant, digest: str, settings: Settings) -> Digest:
    return apply_mirror(parse_reference(variant.base).repository, settings.mirrors).digest(digest)


def _make_maker(
    base: Digest,
    locked: LockedDebian,
    platform: str,
    read: Callable[[], BaseSystem],
    settings: Settings,
    *,
    cache: LayerCache,
    packing: Compression,
    store: PackageStore,
) -> LayerMaker:
    from training_imgtool.debian.layer import LayerMaker

    return LayerMaker(
        base_digest=base.digest,
        locked=locked,
        architecture=_name_architecture(platform),
        read_system=read,
        store=store,
        cache=cache,
        compression=packing,
        mtime=settings.source_date_epoch or MTIME,
    )


def _name_architecture(platform: str) -> str:
    """Translates a platform's architecture to Debian's name."""
    if platform not in _ARCHITECTURES:
        raise NeedsEngineError(f"imgtool does not know the Debian packages of {platform}")
    return _ARCHITECTURES[platform]


def lock_debian(
    variant: Variant,
    base_digest: str,
    *,
    spec: ImageSpec,
    settings: Settings,
    progress: Progress,
    registries: Registries,
) -> LockedDebian | None:
    """Returns what apt installs for a variant's `system` stage; None when it installs nothing.

    It makes the layer too, which proves that imgtool can; where it cannot, the result says why an engine has to.

    Raises:
        FieldError: the base's archives have no such package.
        TemporaryError: an archive does not answer.
        VerificationError: a package or the base is not what its digest says.
    """
    requested = apt_packages(variant, (*spec.system_packages, *variant.apt))
    if not requested:
        return None
    resolver = _Resolver(variant, requested, spec, settings, progress, registries)
    subject = f"packages {variant.name}"
    progress(Step(subject, f"{len(requested)} Debian packages"))
    try:
        locked = resolver.resolve(base_digest)
    except NeedsEngineError as error:
        progress(Note(f"{variant.name}: an engine installs the Debian packages: {error}"))
        return LockedDebian(requested=requested, engine=error.message)
    except InputError as error:
        if spec.template or any(role.template for role in spec.roles.values()):  # which may add an archive
            return LockedDebian(requested=requested, engine=error.message)
        raise FieldError(error.message, field="system_packages", hint=error.hint) from error
    progress(Done(subject, Outcome.LOCKED, f"{len(locked.packages)} Debian packages"))
    return locked


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Resolves the packages of one variant."""

    variant: Variant
    requested: tuple[str, ...]
    spec: ImageSpec
    settings: Settings
    progress: Progress
    registries: Registries

    def resolve(self, base_digest: str) -> LockedDebian:
        """Resolves the packages and makes their layer; raises NeedsEngineError where an engine has to install them."""
        from training_imgtool.debian.apt import resolve_packages

        variant, platform = self.variant, self.spec.platform
        if variant.python_from == "deadsnakes":
            raise NeedsEngineError("Python comes from the deadsnakes archive, whose key the stage fetches")
        base = _name_base(variant, base_digest, self.settings)
        system = read_base_system(base, self.settings, self.progress, self.registries)
        resolution = resolve_packages(system, self.requested, _name_architecture(platform), self.settings)
        locked = LockedDebian(requested=self.requested, packages=resolution.packages)
        maker = _make_maker(
            base,
            locked,
            platform,
            lambda: system,
            self.settings,
            cache=LayerCache(self.settings.cache / "layers"),
            packing=Compression(self.spec.compression),
            store=_open_store(lambda: system, self.settings, self.progress),
        )
        cuda_base = variant.cuda is not None and self.spec.cuda_from == "base"
        libraries = variant.libraries if cuda_base else ()
        maker.tree(OpenedLibraries(libraries, CUDA_LIBRARY_PATH if cuda_base else ""))
        return locked


def read_base_system(
    base: Digest, settings: Settings, progress: Progress, registries: Registries | None = None
) -> BaseSystem:
    """Reads what a base's layers say about its Debian system, or what the cache has of them."""
    from training_imgtool.debian.base_system import read_base
    from training_imgtool.registry.connect import connect

    registry = (registries or connect(settings, progress)).at(base.repository)
    layers = registry.manifest(base).layers
    return read_base(layers, partial(registry.blob, base.repository), LayerCache(settings.cache / "layers"))
