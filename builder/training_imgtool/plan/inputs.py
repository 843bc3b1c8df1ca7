"""Computes content keys from files: loads a spec, updates the spec's lock, makes recipes, and names every image.

The results depend only on files, and on the registry and the index if imgtool must make a lock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from training_imgtool.base.context.context import Context
from training_imgtool.base.errors import FieldError, FieldListError, InputError, UsageError
from training_imgtool.base.reference import Repository, Tag, parse_repository
from training_imgtool.base.settings import Settings
from training_imgtool.model.load import SpecFile
from training_imgtool.model.lock import Lock, LockedVariant, UnusedPath
from training_imgtool.model.recipe.printing import print_dockerfile
from training_imgtool.model.recipe.recipe import Recipe, Stage
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.value_rules import check_registry
from training_imgtool.plan.current_lock import ensure_lock
from training_imgtool.plan.project_files import ANY_SPEC, SpecChoice, read_code
from training_imgtool.plan.recipes import make_recipe

if TYPE_CHECKING:
    from training_imgtool.oci.machine import Machine
    from training_imgtool.resolve.lock.carry_over import Renewal

_NAME_REGISTRY = "give `registry:` in the spec, --registry HOST/PATH, or IMGTOOL_REGISTRY"
KEY_DIGITS = 32  # of 64: 128 bits, in a tag that still fits into a line of a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleImage:
    """A role's image before imgtool makes it: the recipe, the stages, and the tag with the content key.

    Attributes:
        system_packages: the Debian packages that the spec and the lock name, sorted.
        trimmed: the paths that the image leaves out because nothing can open them.
        needed: paths that stay because one of the user's own files names them, with that file.
    """

    role: Role
    recipe: Recipe
    stages: tuple[Stage, ...]
    tag: Tag | None  # None when the spec names no registry
    system_packages: tuple[str, ...]
    trimmed: tuple[UnusedPath, ...]
    needed: Mapping[str, str]

    @property
    def locked(self) -> LockedVariant:
        """The lock's variant for the role."""
        return self.recipe.locked

    @property
    def registry_tag(self) -> Tag:
        """The tag that names the image by its key; raises UsageError when no registry is configured."""
        if self.tag is None:
            raise UsageError("no registry", hint=_NAME_REGISTRY)
        return self.tag

    @property
    def own(self) -> Stage:
        """The role's own stage, which is the last one and adds the code."""
        return self.stages[-1]

    @property
    def key(self) -> str:
        """The image's content key, 64 hexadecimal digits."""
        return self.own.key

    @property
    def text(self) -> str:
        """The Dockerfile that makes the same image."""
        return print_dockerfile(self.recipe, self.key)

    def subject_of(self, stage: Stage) -> str:
        """Returns a stage's name for progress: the role for the last stage, stage and variant for a shared stage."""
        return str(self.role) if stage == self.own else f"{stage.name} {self.locked.variant.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A spec with everything that imgtool makes the images from; without a registry, `target` is None."""

    spec_file: SpecFile
    lock: Lock
    target: Repository | None
    context: Context
    images: tuple[RoleImage, ...]
    others: tuple[Inputs, ...] = ()  # the inputs of the spec's other platforms

    @property
    def by_platform(self) -> tuple[Inputs, ...]:
        """The inputs for each platform, beginning with the inputs for this platform."""
        return (replace(self, others=()), *self.others)

    @property
    def spec(self) -> ImageSpec:
        """The spec, for one platform."""
        return self.spec_file.spec

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the version matrix about the lock's choices."""
        return tuple(dict.fromkeys(note for locked in self.lock.variants for note in locked.variant.notes))

    def index_key(self, role: Role) -> str:
        """Returns the key of the index that lists the images of all platforms, 64 hexadecimal digits."""
        keys = [[inputs.spec.platform, inputs.selected((role,))[0].key] for inputs in self.by_platform]
        return hashlib.sha256(json.dumps(keys).encode()).hexdigest()

    def named_by_index(self) -> Inputs:
        """Replaces the tags of the images with the tags of their indexes if there are several platforms."""
        repository = self.target
        if not self.others or repository is None:
            return self
        keys = {image.role: self.index_key(image.role) for image in self.images}
        images = tuple(
            replace(image, tag=repository.tag(f"{image.role}-{keys[image.role][:KEY_DIGITS]}")) for image in self.images
        )
        return replace(self, images=images)

    @property
    def repository(self) -> Repository:
        """The repository for the images; raises UsageError when no registry is configured."""
        if self.target is None:
            raise UsageError(f"{self.spec_file.path}: no registry", hint=_NAME_REGISTRY)
        return self.target

    def selected(self, roles: tuple[Role, ...]) -> tuple[RoleImage, ...]:
        """Returns the images of `roles`, or all images if `roles` is empty; raises UsageError for an unknown role."""
        require_roles(roles, tuple(image.role for image in self.images))
        return tuple(image for image in self.images if not roles or image.role in roles)


def prepare(
    spec_file: SpecFile,
    machine: Machine,
    choice: SpecChoice = ANY_SPEC,
    *,
    renewal: Renewal | None = None,
    write: bool = True,
    roles: tuple[Role, ...] = (),
    push: bool = False,
) -> Inputs:
    """Makes the recipe and the key of every role of a spec, for each platform of the spec.

    Args:
        spec_file: the spec.
        machine: the machine that does the work.
        choice: the registry, and whether the lock has to be current.
        renewal: what to resolve again; None keeps a current lock.
        write: whether to write a new lock; a dry run and `show` do not write it.
        roles: the roles that the command line names. `prepare` rejects an unknown role before it makes a lock.
        push: whether the run needs a registry. `prepare` reports a missing registry before it makes a lock.

    Raises InputError (exit 3) for anything wrong in the spec, its requirements, templates or context, and for
    a lock that is not current when it has to be.
    """
    named = _registry(choice.registry, machine.settings, spec_file.spec)
    require_roles(roles, tuple(spec_file.spec.roles))
    if push and named is None and spec_file.spec.registry is None:
        raise UsageError(f"{spec_file.path}: no registry", hint=_NAME_REGISTRY)
    every = []
    for platform in spec_file.platforms:
        file = spec_file.for_platform(platform)
        lock = ensure_lock(file, machine, locked=choice.locked, renewal=renewal, write=write)
        every.append(_make_images(file, lock, machine.settings, named))
    first, *others = every
    return replace(first, others=tuple(others))


def _make_images(spec_file: SpecFile, lock: Lock, settings: Settings, registry: str | None) -> Inputs:
    """Makes the recipe of every role for the spec's platform, and the tags, which contain the keys of the images."""
    spec = spec_file.spec
    context = read_code(spec_file, settings, everything=_has_template(spec))
    where = registry or spec.registry
    target = parse_repository(f"{where.rstrip('/')}/{spec.name}") if where else None
    named = _named_libraries(spec_file, lock, context)

    def make(role: Role) -> RoleImage:
        locked = lock.variant_of(role)
        unused = () if spec.trim is False else locked.unused
        trimmed = tuple(path for path in unused if path.rule not in named)
        exclude = tuple(sorted({*spec.exclude, *(path.path for path in trimmed)}))
        recipe = make_recipe(spec_file, role, locked, context, exclude=exclude, settings=settings)
        stages = recipe.make_stages()
        return RoleImage(
            role=role,
            recipe=recipe,
            stages=stages,
            tag=target.tag(f"{role}-{stages[-1].key[:KEY_DIGITS]}") if target else None,
            system_packages=tuple(sorted({*spec.system_packages, *locked.variant.apt})),
            trimmed=trimmed,
            needed={path.path: named[path.rule] for path in unused if path.rule in named},
        )

    try:
        images = tuple(make(role) for role in Role if role in spec.roles)
    except FieldError as error:
        raise spec_file.located(error) from error
    except FieldListError as errors:
        raise FieldListError(tuple(spec_file.located(error) for error in errors.errors)) from errors
    return Inputs(spec_file=spec_file, lock=lock, target=target, context=context, images=images)


def _has_template(spec: ImageSpec) -> bool:
    return bool(spec.template or any(role.template for role in spec.roles.values()))


def _named_libraries(spec_file: SpecFile, lock: Lock, context: Context) -> Mapping[str, str]:
    """Returns the trimming rules whose libraries the user names; nothing if the lock trims nothing."""
    if spec_file.spec.trim is False or not any(locked.unused for locked in lock.variants):
        return {}
    from training_imgtool.plan.named_libraries import named_by_user

    return named_by_user(spec_file.spec, spec_file.folder, context)


def require_roles(roles: Iterable[Role], present: tuple[Role, ...]) -> None:
    """Raises UsageError if the command line names a role that the spec does not have."""
    for role in roles:
        if role not in present:
            raise UsageError(f"the spec has no role {role}: it has {', '.join(present)}")


def _registry(named: str | None, settings: Settings, spec: ImageSpec) -> str | None:
    """Returns the registry from the option, the environment or the spec; raises UsageError for an invalid one."""
    if (given := settings.find_registry(named, spec.registry)) is None:
        return None
    try:
        return check_registry(given.text)
    except InputError as error:
        raise UsageError(f"{given.place}: {error}", hint=error.hint) from error
