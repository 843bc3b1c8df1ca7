"""From files to content keys: loads a spec, makes sure of its lock, renders, and names every image.

Everything here is a function of files (and, only when a lock must be made, of the registry and the index).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from training_imgtool.context.context import Context
from training_imgtool.core.errors import FieldError, FieldListError, InputError, UsageError
from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Repository, Tag
from training_imgtool.core.settings import Settings
from training_imgtool.dockerfile import apt_step, install_step
from training_imgtool.dockerfile.mounts import context_sources
from training_imgtool.dockerfile.parse import Dockerfile, parse
from training_imgtool.dockerfile.render import RenderCache, TemplateRoots, list_sources, render, with_key
from training_imgtool.lock.lockfile import identify_lock
from training_imgtool.pipeline.content_key import stage_keys
from training_imgtool.pipeline.current_lock import ensure_lock
from training_imgtool.pipeline.project_files import read_code
from training_imgtool.pipeline.run_wheels import with_wheels
from training_imgtool.plan import Lock, Plan, RolePlan, make_plan
from training_imgtool.spec.load import SpecFile
from training_imgtool.spec.model import Role
from training_imgtool.spec.value_rules import check_registry

if TYPE_CHECKING:
    from training_imgtool.lock.carry_over import Renewal
    from training_imgtool.registry.connect import Registries

_NAME_REGISTRY = "give `registry:` in the spec, --registry HOST/PATH, or IMGTOOL_REGISTRY"
KEY_DIGITS = 32  # of 64: 128 bits, and a tag that a terminal line still holds


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleImage:
    """One role's image by its inputs: the text that makes it and the key that names it."""

    plan: RolePlan
    text: str
    dockerfile: Dockerfile
    keys: Mapping[str, str]
    tag: Tag | None  # None when the spec names no registry

    @property
    def role(self) -> Role:
        """Which role."""
        return self.plan.role

    @property
    def registry_tag(self) -> Tag:
        """The tag that names the image by its key; raises UsageError when no registry is configured."""
        if self.tag is None:
            raise UsageError("no registry", hint=_NAME_REGISTRY)
        return self.tag

    @property
    def label(self) -> str:
        """The label of the role's own stage."""
        return self.dockerfile.stages[-1].label

    @property
    def key(self) -> str:
        """The content key of the whole image, 64 hexadecimal digits."""
        return self.keys[self.label]

    def subject_of(self, label: str) -> str:
        """Returns what progress calls a stage: the role for its own; stage and variant for one that roles share."""
        return str(self.role) if label == self.label else f"{label} {self.plan.locked.variant.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A spec with everything that its images are made from."""

    spec_file: SpecFile
    lock: Lock
    plan: Plan
    context: Context
    images: tuple[RoleImage, ...]
    others: tuple[Inputs, ...] = ()  # of the same spec's further platforms

    @property
    def by_platform(self) -> tuple[Inputs, ...]:
        """The inputs of each platform, these first."""
        return (replace(self, others=()), *self.others)

    def index_key(self, role: Role) -> str:
        """Returns the key of the index over all platforms, 64 hexadecimal digits."""
        keys = [[inputs.plan.platform, inputs.selected((role,))[0].key] for inputs in self.by_platform]
        return hashlib.sha256(json.dumps(keys).encode()).hexdigest()

    def named_by_index(self) -> Inputs:
        """Adds the tags of the indexes over all platforms; changes nothing where there is one platform."""
        repository = self.plan.repository
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
        if self.plan.repository is None:
            raise UsageError(f"{self.spec_file.path}: no registry", hint=_NAME_REGISTRY)
        return self.plan.repository

    def selected(self, roles: tuple[Role, ...]) -> tuple[RoleImage, ...]:
        """Returns the images of `roles`, all when none is named; raises UsageError for a role the spec has not."""
        require_roles(roles, tuple(image.role for image in self.images))
        return tuple(image for image in self.images if not roles or image.role in roles)


def prepare(
    spec_file: SpecFile,
    settings: Settings,
    progress: Progress,
    *,
    registry: str | None = None,
    locked: bool = False,
    registries: Registries | None = None,
    renewal: Renewal | None = None,
    write: bool = True,
    roles: tuple[Role, ...] = (),
    push: bool = False,
) -> Inputs:
    """Renders every role of a spec and works out its keys, for each of its platforms.

    Args:
        spec_file: the spec.
        settings: of the machine.
        progress: receives what making a lock takes.
        registry: instead of the spec's.
        locked: refuse a lock that is missing or stale, instead of writing one.
        registries: open clients.
        renewal: make the lock anew.
        write: whether a new lock is written; a dry run and `show` use it without that.
        roles: that the command line names; a wrong one is found before a lock is made.
        push: whether the run needs a registry, so that a missing one is found before a lock is made.

    Raises InputError (exit 3) for anything wrong in the spec, its requirements, templates or context, and for
    a lock that is not current when `locked`.
    """
    named = _registry(registry, settings)
    require_roles(roles, tuple(spec_file.spec.roles))
    if push and named is None and spec_file.spec.registry is None:
        raise UsageError(f"{spec_file.path}: no registry", hint=_NAME_REGISTRY)
    every, cache = [], RenderCache(settings.cache, list_sources(TemplateRoots()))
    for platform in spec_file.platforms:
        file = spec_file.for_platform(platform)
        lock = ensure_lock(
            file,
            settings,
            progress,
            identity=identify_lock(file),
            locked=locked,
            registries=registries,
            renewal=renewal,
            write=write,
        )
        every.append(_render_images(file, lock, cache, settings=settings, registry=named))
    first, *others = every
    return replace(first, others=tuple(others))


def _render_images(
    spec_file: SpecFile,
    lock: Lock,
    cache: RenderCache,
    *,
    settings: Settings,
    registry: str | None,
) -> Inputs:
    """Renders every role for the platform of the spec, and names the images by their keys."""
    spec, entry = spec_file.spec, spec_file.entry
    context = read_code(spec_file, settings, None)
    plan = make_plan(
        spec,
        spec_file.folder,
        lock,
        entry=entry,
        registry=registry,
        mirrors=settings.mirrors,
        revision=context.tree_id(entry.folder if entry.paths == (entry.folder,) else "."),
        named=_named_libraries(spec_file, lock, context),
    )
    try:
        roots = TemplateRoots(plan.folder)
        texts = {
            role.role: render(role, roots=roots, key=None, cache=cache, allow_secrets=spec.allow_secrets)
            for role in plan.roles
        }
        parsed = {role: parse(text, file=f"{role}.Dockerfile") for role, text in texts.items()}
        copied = _list_copied_paths(parsed.values())
        if copied != set(entry.paths):
            context = read_code(spec_file, settings, copied)
        context = reduce(with_wheels, lock.variants, context)
        keys = {
            role.role: stage_keys(parsed[role.role], context, plan.platform, plan.compression, debian_runs(role))
            for role in plan.roles
        }
        images = tuple(_image(role, plan, texts[role.role], parsed[role.role], keys[role.role]) for role in plan.roles)
    except FieldError as error:
        raise spec_file.located(error) from error
    except FieldListError as errors:
        raise FieldListError(tuple(spec_file.located(error) for error in errors.errors)) from errors
    return Inputs(spec_file=spec_file, lock=lock, plan=plan, context=context, images=images)


def _named_libraries(spec_file: SpecFile, lock: Lock, context: Context) -> Mapping[str, str]:
    """Returns the rules of trimming whose files the user's own files name; nothing where the lock trims nothing."""
    if spec_file.spec.trim is False or not any(locked.unused for locked in lock.variants):
        return {}
    from training_imgtool.pipeline.named_libraries import named_by_user

    return named_by_user(spec_file.spec, spec_file.folder, context)


def require_roles(roles: Iterable[Role], present: tuple[Role, ...]) -> None:
    """Requires that the spec has the roles that the command line names; raises UsageError."""
    for role in roles:
        if role not in present:
            raise UsageError(f"the spec has no role {role}: it has {', '.join(present)}")


def _registry(named: str | None, settings: Settings) -> str | None:
    """Returns the registry that the command line or the environment names; raises UsageError for an invalid one."""
    text = named or settings.registry
    try:
        return check_registry(text) if text else None
    except InputError as error:
        raise UsageError(f"{'--registry' if named else 'IMGTOOL_REGISTRY'}: {error}", hint=error.hint) from error


def _list_copied_paths(dockerfiles: Iterable[Dockerfile]) -> frozenset[str]:
    """Lists what the Dockerfiles copy from the spec's folder: paths and patterns, without what imgtool adds."""
    every = {source.strip("/") for dockerfile in dockerfiles for source in context_sources(dockerfile.stages)}
    return frozenset(source for source in every if source.split("/")[0] != install_step.context_root())


def debian_runs(role: RolePlan) -> dict[str, str]:
    """Finds the RUN that installs the role's locked Debian packages; nothing when an engine runs it."""
    debian = role.locked.debian
    if debian is None or debian.engine:
        return {}
    script = apt_step.install_script(role.locked.variant, debian.requested, apt_step.libraries_to_open(role))
    packages = "".join(f"{package.name} {package.version} {package.sha256}\n" for package in debian.packages)
    return {apt_step.instruction_text(script): hashlib.sha256(packages.encode()).hexdigest()}


def _image(role_plan: RolePlan, plan: Plan, text: str, dockerfile: Dockerfile, keys: Mapping[str, str]) -> RoleImage:
    key = keys[dockerfile.stages[-1].label]
    keyed = with_key(text, key)
    return RoleImage(
        plan=role_plan,
        text=keyed,
        dockerfile=parse(keyed, file=dockerfile.file),
        keys=keys,
        tag=plan.repository.tag(f"{role_plan.role}-{key[:KEY_DIGITS]}") if plan.repository else None,
    )
