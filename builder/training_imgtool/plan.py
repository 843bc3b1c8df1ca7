"""Every choice made, in memory: what was resolved and locked, per role, before anything happens.

`Resolution` is what the version matrix says, `Lock` is that with digests and wheels, `Plan` is the lock
applied to the spec's roles. All three are pure values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.reference import Digest, Repository, apply_mirror, parse_reference, parse_repository
from training_imgtool.spec.entry_point import EntryPoint
from training_imgtool.spec.model import Accelerator, ImageSpec, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What a set of roles has in common below its code: TensorFlow, Python, CUDA, cuDNN and a base image.

    `name` is `cpu`, `gpu` or `tpu`, or a role's own name when that role has a base of its own.
    """

    name: str
    roles: tuple[Role, ...]
    accelerator: Accelerator
    package: str  # the TensorFlow package on PyPI: tensorflow, tensorflow-cpu, tensorflow-gpu, tensorflow-tpu
    tensorflow: str
    python: str  # "3.11"
    cuda: str | None
    cudnn: str | None
    base: str  # REPOSITORY:TAG as chosen or given
    os: str | None  # "ubuntu22.04", "debian12"; None when the base is the user's and unknown
    python_from: str  # "image", "apt" or "deadsnakes": how the base comes by this Python
    python_executable: str  # absolute path in the image, such as /usr/local/bin/python3.11
    requirements: tuple[str, ...]  # TensorFlow itself and what a fresh install lacks, as PEP 508
    constraints: tuple[str, ...]  # without which this release no longer installs or imports
    libraries: tuple[str, ...]  # sonames that must open, such as libcudnn.so.8
    apt: tuple[str, ...] = ()  # Debian packages that complete the base, such as a cuDNN it lacks
    notes: tuple[str, ...] = ()  # warnings that go with the choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One wheel, or one source archive, by name and hash. Where it comes from is the machine's own setting."""

    name: str
    version: str
    file: str
    sha256: str
    size: int  # bytes
    source: Source | None = None  # what imgtool builds the wheel from; None for one that an index has


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What imgtool built a wheel from, and on which Python.

    `origin` is empty for an archive of an index; else it says what imgtool packs, as the requirements name it: a path
    relative to the spec, or `git+URL@REVISION#subdirectory=PATH`, whose `commit` is locked.
    """

    archive: Wheel
    python: str  # the minor version of the interpreter that builds it, "3.11"
    origin: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianPackage:
    """One Debian package by name and hash. `file` is its path in an archive, which the base's sources name."""

    name: str
    version: str
    architecture: str
    file: str  # "pool/main/g/gcc-12/libgomp1_12.2.0-14_amd64.deb"
    sha256: str
    size: int  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedDebian:
    """What apt installs for a variant's `system` stage.

    Attributes:
        requested: the packages that the stage names, sorted.
        packages: all that apt installs for them, in dpkg's order; empty when an engine has to install them.
        engine: why an engine has to, with the package and its script; empty when imgtool lays the packages out.
    """

    requested: tuple[str, ...]
    packages: tuple[DebianPackage, ...] = ()
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedPath:
    """A file or folder of a wheel that nothing in the image can open."""

    path: str  # below site-packages
    size: int  # bytes, uncompressed
    rule: str  # of `versions.trim_rules`


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedVariant:
    """A variant with its base by digest and exactly the wheels that go in."""

    variant: Variant
    base_digest: str
    installer: Wheel  # pip itself, run from its wheel; it does not end up in the image
    wheels: tuple[Wheel, ...]  # sorted by name
    debian: LockedDebian | None = None  # None when the base has all that the stage needs
    unused: tuple[UnusedPath, ...] = ()  # sorted by path
    needed_libraries: tuple[str, ...] | None = None  # what wheels need of the base or a package; None if nobody looked


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock file's content. It is committed beside its spec: `gpu.lock` beside `gpu.yaml`."""

    inputs: str  # sha256 over what the lock depends on: versions, bases, requirements, platform, the matrix
    platform: str
    variants: tuple[LockedVariant, ...]

    def variant_of(self, role: Role) -> LockedVariant:
        """Returns the variant that `role` is built from; raises KeyError when the lock has none."""
        for locked in self.variants:
            if role in locked.variant.roles:
                return locked
        raise KeyError(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlan:
    """One role's image, every choice made."""

    role: Role
    locked: LockedVariant
    base: Digest  # where the base is read from, a mirror applied
    base_name: str  # its canonical REPOSITORY:TAG, for the label
    platform: str
    template: str  # a template's name, or a path when it is the user's
    system_packages: tuple[str, ...]
    entry: EntryPoint
    user: str | None
    exclude: tuple[str, ...]  # paths below site-packages that are left out, those of `trimmed` among them
    trimmed: tuple[UnusedPath, ...]  # left out because nothing can open them
    needed: Mapping[str, str]  # paths that would be trimmed if the user's own files did not name them; who does
    env: Mapping[str, str]
    labels: Mapping[str, str]  # without the content key, which depends on them
    cuda_base: bool  # the base is an nvidia/cuda image or the like

    @property
    def entrypoint(self) -> tuple[str, ...]:
        """The exec form that starts the trainer."""
        return ("/opt/venv/bin/python", *self.entry.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All roles of one spec, in the order master, worker, ps, evaluator."""

    name: str
    folder: Path
    repository: Repository | None
    platform: str
    roles: tuple[RolePlan, ...]
    warnings: tuple[str, ...]
    compression: str

    def role(self, role: Role) -> RolePlan:
        """Returns the plan of `role`; raises KeyError when the spec has none."""
        for plan in self.roles:
            if plan.role is role:
                return plan
        raise KeyError(role)


TITLE = "org.opencontainers.image.title"
REVISION = "org.opencontainers.image.revision"
KEY_LABEL = "dev.imgtool.key"
ROLE_LABEL = "dev.imgtool.role"
TENSORFLOW_LABEL = "dev.imgtool.tensorflow"


def make_plan(
    spec: ImageSpec,
    folder: Path,
    lock: Lock,
    *,
    entry: EntryPoint,
    registry: str | None,
    mirrors: Mapping[str, str] | None,
    revision: str | None,
    named: Mapping[str, str] | None,
) -> Plan:
    """Applies a lock to a spec's roles.

    Args:
        spec: what was asked.
        folder: the spec's folder.
        lock: what it resolved to.
        entry: the program that the images start.
        registry: where images go, instead of the spec's own `registry`.
        mirrors: registry hosts to read bases from instead, such as `docker.io` to `mirror.example.com:5000`.
        revision: what identifies the source, for the label.
        named: the rules of trimming whose files the user's own files may open, and which file it is.
    """
    where = registry or spec.registry
    repository = parse_repository(f"{where.rstrip('/')}/{spec.name}") if where else None
    warnings = tuple(dict.fromkeys(note for locked in lock.variants for note in locked.variant.notes))
    return Plan(
        name=spec.name,
        folder=folder,
        repository=repository,
        platform=spec.platform,
        roles=tuple(
            _role_plan(
                spec,
                role,
                lock.variant_of(role),
                entry=entry,
                mirrors=mirrors or {},
                revision=revision,
                named=named or {},
            )
            for role in Role
            if role in spec.roles
        ),
        warnings=warnings,
        compression=spec.compression,
    )


def _role_plan(
    spec: ImageSpec,
    role: Role,
    locked: LockedVariant,
    *,
    entry: EntryPoint,
    mirrors: Mapping[str, str],
    revision: str | None,
    named: Mapping[str, str],
) -> RolePlan:
    of_role = spec.roles[role]
    unused = () if spec.trim is False else locked.unused
    trimmed = tuple(path for path in unused if path.rule not in named)
    needed = {"PYTHONPATH": entry.python_path} if entry.python_path else {}
    base = parse_reference(locked.variant.base)
    labels = {
        TITLE: f"{spec.name}-{role}",
        ROLE_LABEL: str(role),
        TENSORFLOW_LABEL: locked.variant.tensorflow,
    }
    if revision:
        labels[REVISION] = revision
    return RolePlan(
        role=role,
        locked=locked,
        base=apply_mirror(base.repository, mirrors).digest(locked.base_digest),
        base_name=str(base),
        platform=spec.platform,
        template=of_role.template or spec.template or f"{role}.Dockerfile.j2",
        system_packages=tuple(sorted({*spec.system_packages, *locked.variant.apt})),
        entry=entry,
        user=spec.user,
        exclude=tuple(sorted({*spec.exclude, *(unused.path for unused in trimmed)})),
        trimmed=trimmed,
        needed={path.path: named[path.rule] for path in unused if path.rule in named},
        env=dict(sorted({**needed, **spec.env, **of_role.env}.items())),
        labels=labels,
        cuda_base=locked.variant.cuda is not None and spec.cuda_from == "base",
    )
