"""The types of all choices that imgtool makes before it builds an image.

A `Variant` contains choices from the version matrix, a `Lock` adds digests and wheels, and a `Plan` applies the lock to
the spec's roles. Texts of a lock file go into Dockerfiles and paths, so each field has a pattern for its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from training_imgtool.base.reference import Digest, Repository, apply_mirror, parse_reference, parse_repository
from training_imgtool.model.entry_point import EntryPoint
from training_imgtool.model.frameworks import FRAMEWORKS, Framework, framework_of
from training_imgtool.model.spec import INIT, Accelerator, ImageSpec, Role

_VERSION = r"\d+(?:\.\d+)+"
_RELEASE = r"\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?"
_LINE = r"[^\x00-\x1f\x7f]+"
_SHA256 = r"[0-9a-f]{64}"
_PYTHON = r"3\.\d{1,2}"
_DEBIAN = r"[a-z0-9][a-z0-9.+:-]*(?:=[\w.+:~-]+)?"  # NAME or NAME=VERSION


def text(pattern: str) -> Mapping[str, str]:
    """Returns the metadata of a field whose text must match `pattern`; in a field with a list, each text must match."""
    return {"pattern": pattern}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What some roles share: a framework, Python, CUDA, cuDNN and a base image.

    Attributes:
        name: `cpu`, `gpu` or `tpu`, or the name of a role that has a base of its own.
        package: the framework's package on PyPI.
        tensorflow: the release of TensorFlow; None with another framework.
        python: the minor version, `3.11`.
        base: REPOSITORY:TAG as chosen or given.
        os: `ubuntu22.04`, `debian12`; None if the user chose a base image that imgtool does not know.
        python_from: how the base gets this Python.
        python_executable: the path of Python in the image, such as /usr/local/bin/python3.11.
        requirements: the framework, and packages that it needs but does not declare, in the format of PEP 508.
        constraints: limits without which this release no longer installs or imports.
        libraries: sonames that the image must be able to open, such as libcudnn.so.8.
        apt: Debian packages that the base lacks, such as cuDNN.
        notes: warnings about the choice.
    """

    name: str = field(metadata=text(r"[a-z0-9]+(?:[._-][a-z0-9]+)*"))
    roles: tuple[Role, ...]
    accelerator: Accelerator
    package: str = field(metadata=text("|".join(name for row in FRAMEWORKS.values() for name in row.packages)))
    tensorflow: str | None = field(metadata=text(_RELEASE), default=None)
    jax: str | None = field(metadata=text(r"\d+(?:\.\d+){2,3}(?:\.post\d+|rc\d+)?"), default=None)
    torch: str | None = field(metadata=text(_RELEASE), default=None)
    python: str = field(metadata=text(_PYTHON))
    cuda: str | None = field(metadata=text(_VERSION))
    cudnn: str | None = field(metadata=text(_VERSION))
    base: str = field(metadata=text(r"[A-Za-z0-9][\w./:@\[\]-]*"))
    os: str | None = field(metadata=text(r"[a-z]+[0-9.]+"))
    python_from: str = field(metadata=text(r"image|apt|deadsnakes"))
    python_executable: str = field(metadata=text(r"(?:/[\w.+-]+)+"))
    requirements: tuple[str, ...] = field(metadata=text(_LINE))
    constraints: tuple[str, ...] = field(metadata=text(_LINE))
    libraries: tuple[str, ...] = field(metadata=text(r"lib[\w.+-]+"))
    apt: tuple[str, ...] = field(metadata=text(_DEBIAN), default=())
    notes: tuple[str, ...] = field(metadata=text(_LINE), default=())

    @property
    def framework(self) -> Framework:
        """The framework that the roles use."""
        return framework_of(self)

    @property
    def release(self) -> str:
        """The framework's release."""
        return str(getattr(self, self.framework.key))

    @property
    def build(self) -> str:
        """The build of the framework's wheels, which is their local version, such as cpu; "" for the only build."""
        return self.requirements[0].partition("+")[2] if self.requirements else ""

    @property
    def installed(self) -> dict[str, str]:
        """The key, package and release of the roles' framework, for results."""
        return {"framework": self.framework.key, "package": self.package, "release": self.release}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One wheel or source archive, by name and hash. Each machine's settings say where to download the file."""

    name: str = field(metadata=text(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"))
    version: str = field(metadata=text(r"[0-9][0-9A-Za-z.+!_-]*"))
    size: int  # bytes
    sha256: str = field(metadata=text(_SHA256))
    file: str = field(metadata=text(r"[A-Za-z0-9][\w.+!-]*\.(?:whl|tar\.gz|zip|tar)"))
    source: Source | None = None  # the source from which imgtool builds the wheel; None for a wheel from an index


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source from which imgtool built a wheel.

    `origin` is the file name of an archive on an index, a path relative to the spec, or
    `git+URL@REVISION#subdirectory=PATH`. `commit` is the commit to which REVISION led when imgtool made the lock.
    """

    origin: str = field(metadata=text(_LINE))
    commit: str = field(metadata=text(r"[0-9a-f]{40}(?:[0-9a-f]{24})?"), default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianPackage:
    """One Debian package by name and hash. Debian Policy 5.6.7 and 5.6.12 define the format of names and versions.

    `file` is its path in the archives that the base uses, such as pool/main/g/gcc-12/libgomp1_12.2.0-14_amd64.deb.
    """

    name: str = field(metadata=text(r"[a-z0-9][a-z0-9.+-]+"))
    version: str = field(metadata=text(r"[0-9][A-Za-z0-9.+~:-]*"))
    architecture: str = field(metadata=text(r"[a-z0-9-]+"))
    size: int  # bytes
    sha256: str = field(metadata=text(_SHA256))
    file: str = field(metadata=text(r"(?!\.\.?/)[\w.+~:%-]+(?:/(?!\.\.?(?:/|\Z))[\w.+~:%-]+)*\.deb"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedDebian:
    """The Debian packages for a variant's `system` stage.

    Attributes:
        requested: the packages that the stage names, sorted.
        packages: all packages that apt installs for them, in dpkg's order; empty if they need buildx.
        engine: why they need buildx, with the package and its script; empty if imgtool itself installs them.
    """

    requested: tuple[str, ...] = field(metadata=text(_DEBIAN))
    engine: str = field(metadata=text(_LINE), default="")
    packages: tuple[DebianPackage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedPath:
    """A file or folder of a wheel that nothing in the image can open."""

    path: str = field(metadata=text(r"[\w+-][\w.+-]*(?:/[\w+-][\w.+-]*)*"))  # below site-packages
    size: int  # bytes, uncompressed
    rule: str = field(metadata=text(r"[A-Za-z][\w ]*"))  # the name of a rule in `resolve.lock.trim`


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedVariant:
    """A variant, with the digest of its base image and the exact wheels.

    Attributes:
        installer: the wheel of pip, which runs from its wheel and does not go into the image.
        wheels: the wheels, sorted by name.
        unused: the unused paths, sorted.
        needed_libraries: libraries that wheels need from the base or a Debian package; None if unknown.
        debian: the Debian packages; None if the base has everything that the stage needs.
    """

    variant: Variant
    base_digest: str = field(metadata=text(rf"sha256:{_SHA256}"))
    installer: Wheel
    wheels: tuple[Wheel, ...]
    unused: tuple[UnusedPath, ...] = ()
    needed_libraries: tuple[str, ...] | None = field(metadata=text(r"[^\x00-\x20\x7f/]+"), default=None)
    debian: LockedDebian | None = None

    @property
    def has_keras_3(self) -> bool:
        """Whether the wheels contain Keras 3 or newer, which reads its backend from the environment."""
        return any(wheel.name == "keras" and int(wheel.version.split(".")[0]) >= 3 for wheel in self.wheels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The content of a lock file, which users commit beside the spec, such as `gpu.lock` beside `gpu.yaml`.

    `inputs` contains a hash of each input of the lock, such as the versions, base images, requirements and platform.
    """

    inputs: str = field(metadata=text(r"\S+=[0-9a-f]{16}(?: \S+=[0-9a-f]{16})*"))
    platform: str = field(metadata=text(r"[a-z0-9]+/[a-z0-9]+(?:/[a-z0-9]+)?"))
    variants: tuple[LockedVariant, ...]

    def variant_of(self, role: Role) -> LockedVariant:
        """Returns the variant of `role`; raises KeyError if the lock has none."""
        for locked in self.variants:
            if role in locked.variant.roles:
                return locked
        raise KeyError(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlan:
    """All choices for one role's image."""

    role: Role
    locked: LockedVariant
    base: Digest  # the repository to read the base from, possibly a mirror
    base_name: str  # the base's canonical REPOSITORY:TAG, for the label
    platform: str
    template: str | None  # the path of the user's template, relative to the spec
    system_packages: tuple[str, ...]
    entry: EntryPoint
    user: str | None
    exclude: tuple[str, ...]  # paths below site-packages to leave out, including those of `trimmed`
    trimmed: tuple[UnusedPath, ...]  # paths to leave out because nothing can open them
    needed: Mapping[str, str]  # paths that stay because one of the user's own files names them, with that file
    env: Mapping[str, str]
    labels: Mapping[str, str]  # without the content key, which depends on the labels
    cuda_base: bool  # whether the base is an nvidia/cuda image or a similar one

    @property
    def entrypoint(self) -> tuple[str, ...]:
        """The image's entry point in exec form. It starts the program."""
        return (*INIT, "/opt/venv/bin/python", *self.entry.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plans of all roles of one spec, in the order master, worker, ps, evaluator."""

    name: str
    folder: Path
    repository: Repository | None
    platform: str
    roles: tuple[RolePlan, ...]
    warnings: tuple[str, ...]
    compression: str

    def role(self, role: Role) -> RolePlan:
        """Returns the plan of `role`; raises KeyError if the spec does not have the role."""
        for plan in self.roles:
            if plan.role is role:
                return plan
        raise KeyError(role)


TITLE = "org.opencontainers.image.title"
REVISION = "org.opencontainers.image.revision"
KEY_LABEL = "dev.imgtool.key"
BASE_TEMPLATE = "base.Dockerfile.j2"
BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"


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
        spec: the spec.
        folder: the spec's folder.
        lock: the spec's lock.
        entry: the program that the images start.
        registry: the registry for the images, which replaces the spec's `registry`.
        mirrors: for some hosts, another host to read base images from, such as a mirror of `docker.io`.
        revision: the revision of the source code, for a label.
        named: the rules of trimming that keep their files because a file of the user names one; with that file's name.
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
    if (backend := locked.variant.framework.backend) and locked.has_keras_3:
        needed["KERAS_BACKEND"] = backend
    base = parse_reference(locked.variant.base)
    labels = {
        TITLE: spec.name,
        locked.variant.framework.label: locked.variant.release,
    }
    if revision:
        labels[REVISION] = revision
    return RolePlan(
        role=role,
        locked=locked,
        base=apply_mirror(base.repository, mirrors).digest(locked.base_digest),
        base_name=str(base),
        platform=spec.platform,
        template=of_role.template or spec.template,
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
