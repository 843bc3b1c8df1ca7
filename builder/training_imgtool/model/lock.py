"""The types of `image.lock`: what the spec's versions, bases and packages resolved to, with every file by its hash.

A `Variant` contains choices from the version matrix; the `Lock` adds digests and wheels. Texts of a lock file go into
Dockerfiles and paths, so each field has a pattern for its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from training_imgtool.model.frameworks import FRAMEWORKS, Framework, framework_of
from training_imgtool.model.spec import Accelerator, Role

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
