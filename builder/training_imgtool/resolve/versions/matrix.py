"""The version matrix: the Python, CUDA, cuDNN and base image that fit each TensorFlow.

The data is `data/compat.yaml`. This module defines the matrix's types, reads the matrix, and looks up facts.
`resolve.versions.resolve` chooses versions, and `resolve.versions.rules` refuses versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.model.frameworks import Framework
from training_imgtool.resolve.versions.matrix_file import matrix_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One patch release on the package index.

    Attributes:
        pythons: the Python minors that its Linux x86_64 wheels support, oldest first; `pythons_arm` for aarch64.
        lacks: maps a Python to a needed package that has no wheel for it; `lacks_arm` for aarch64.
        packages: the distributions that have a wheel of the release.
        cpu_wheel: whether its `tensorflow` wheel computes only on the CPU.
        constraints: limits that its own metadata lacks, in addition to those of its minor.
        builds: the local version of its wheels by accelerator, such as cpu; "" for wheels without one.
    """

    version: str
    date: str = ""
    pythons: tuple[str, ...]
    pythons_arm: tuple[str, ...]
    lacks: Mapping[str, str] = field(default_factory=dict)
    lacks_arm: Mapping[str, str] = field(default_factory=dict)
    packages: frozenset[str]
    cpu_wheel: bool = False
    constraints: tuple[str, ...] = ()
    builds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingBase:
    """An nvidia/cuda tag that fits a minor, and the Debian packages that imgtool adds to it."""

    tag: str
    apt: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Minor:
    """The facts that the releases of one TensorFlow minor share."""

    name: str
    source: str
    recommended: str
    releases: Mapping[str, Release]
    cuda: str
    cudnn: str
    glibc: str
    pip: str
    compute: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    requires: Mapping[str, str]
    sdists: Mapping[str, str] = field(default_factory=dict)
    and_cuda: Mapping[str, str] = field(default_factory=dict)
    and_cuda_broken: Mapping[str, str] = field(default_factory=dict)
    bases: tuple[FittingBase, ...] = ()
    no_base: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaImage:
    """The content of one nvidia/cuda tag."""

    tag: str
    cuda: str
    os: str
    cudnn: str | None
    status: str  # supported, unsupported (still there, but no longer rebuilt) or gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU: its compute capability times ten, and the first CUDA release that supports it."""

    name: str
    compute: int
    cuda: str


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A Linux distribution: its own Python and glibc, and the Pythons of the deadsnakes archive."""

    python: str
    glibc: str
    deadsnakes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonImage:
    """A slim Python image."""

    tag: str
    os: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Libtpu:
    """The libtpu that a tensorflow-tpu release pins, and whether the index has it (true, false, partly)."""

    version: str
    on_index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The whole matrix. `minors` are TensorFlow's; `learned` maps a framework's key to a row made from an index."""

    version: str
    sources: Mapping[str, str]
    minors: Mapping[str, Minor]
    cuda_images: Mapping[str, CudaImage]
    gpus: Mapping[str, Gpu]
    systems: Mapping[str, System]
    python_images: Mapping[str, PythonImage]
    last_pip: Mapping[str, str]
    libtpu: Mapping[str, Libtpu]
    tpu_find_links: str
    ai_platform_tpu: tuple[str, ...]
    learned: Mapping[str, tuple[Minor, Release]] = field(default_factory=dict)

    @property
    def pure_archives(self) -> frozenset[str]:
        """Releases (`gast==0.2.2`) that old minors need, that have no wheel, and that every Python can build."""
        rows = (row for minor in self.minors.values() for row in minor.sdists.items())
        return frozenset(f"{name}=={version}" for name, version in rows)

    def release(self, version: str, framework: Framework) -> tuple[Minor, Release]:
        """Finds a framework's release and its minor; raises FieldError with the nearest release if it is unknown."""
        if framework.key in self.learned:
            return self.learned[framework.key]
        minor = self.minors.get(".".join(version.split(".")[:2]))
        if minor is not None and version in minor.releases:
            return minor, minor.releases[version]
        if minor is None:
            names = tuple(self.minors)
            newest = self.minors[names[-1]].recommended
            hint = f"known minors: {names[0]} to {names[-1]}; the newest release is {newest}"
        else:
            hint = f"{minor.name} has {', '.join(minor.releases)}; take {minor.recommended}"
        raise FieldError(
            f"imgtool's table of {self.version} has no {framework.title} {version}", field=framework.key, hint=hint
        )


def load_matrix(text: bytes | None = None) -> Matrix:
    """Reads the matrix from `text`, or from the file that comes with imgtool."""
    from training_imgtool.base.yamlfile.reader import parse
    from training_imgtool.base.yamlfile.tree import to_plain

    raw: dict[str, Any] = to_plain(parse(matrix_bytes() if text is None else text, "compat.yaml"))
    return Matrix(
        version=raw["version"],
        sources=raw["sources"],
        minors={name: _minor(name, row) for name, row in raw["tensorflow"].items()},
        cuda_images={image.tag: image for tag, row in raw["cuda_images"].items() for image in _cuda_images(tag, row)},
        gpus={name: Gpu(name=name, compute=int(row["compute"]), cuda=row["cuda"]) for name, row in raw["gpus"].items()},
        systems={
            name: System(python=row["python"], glibc=row["glibc"], deadsnakes=python_minors(row.get("deadsnakes", "")))
            for name, row in raw["systems"].items()
        },
        python_images={python: PythonImage(**row) for python, row in raw["python_images"].items()},
        last_pip=raw["last_pip"],
        libtpu={version: Libtpu(**row) for version, row in raw["tpu"]["libtpu"].items()},
        tpu_find_links=f"https://{raw['tpu']['find_links']}",
        ai_platform_tpu=tuple(raw["tpu"]["ai_platform"]),
    )


def python_minors(text: str) -> tuple[str, ...]:
    """Expands `3.7-3.9 3.11` as ("3.7", "3.8", "3.9", "3.11")."""
    minors: list[str] = []
    for part in text.split():
        first, _, last = part.partition("-")
        major, start = first.split(".")
        end = (last or first).split(".")[1]
        minors += [f"{major}.{minor}" for minor in range(int(start), int(end) + 1)]
    return tuple(minors)


def version_key(version: str) -> tuple[int, ...]:
    """Returns the numbers of a plain dotted version, for comparing: `12.6.3` is (12, 6, 3)."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def lowest(pin: str) -> str:
    """Returns the lower limit of a pin, such as 1.2 for `==1.2` and `<2.0,>=1.2`."""
    return next(part.strip("=>") for part in pin.split(",") if part.startswith((">=", "==")))


def _minor(name: str, row: Mapping[str, Any]) -> Minor:
    built = row["built"]
    return Minor(
        name=name,
        source=row["source"],
        recommended=row["recommended"],
        releases={key: _release(key, release, row.get("cpu_wheel", ())) for key, release in row["releases"].items()},
        cuda=built["cuda"],
        cudnn=built["cudnn"],
        glibc=built["glibc"],
        pip=built["pip"],
        compute=tuple(row.get("compute", "").split()),
        constraints=tuple(row.get("constraints", ())),
        add=tuple(row.get("add", ())),
        requires=row["requires"],
        sdists=row.get("sdists", {}),
        and_cuda=row.get("and_cuda", {}),
        and_cuda_broken=row.get("and_cuda_broken", {}),
        bases=tuple(FittingBase(tag=base["tag"], apt=tuple(base.get("apt", ()))) for base in row.get("bases", ())),
        no_base=row.get("no_base"),
        notes=tuple(row.get("notes", ())),
    )


def _release(version: str, row: Mapping[str, Any], cpu_wheels: tuple[str, ...]) -> Release:
    return Release(
        version=version,
        date=row["date"],
        pythons=python_minors(row["python"]),
        pythons_arm=python_minors(row.get("arm", "")),
        lacks=row.get("lacks", {}),
        lacks_arm=row.get("arm_lacks", {}),
        packages=frozenset({"tensorflow", *(f"tensorflow-{kind}" for kind in row.get("also", "").split())}),
        cpu_wheel=version in cpu_wheels,
        constraints=tuple(row.get("constraints", ())),
    )


def _cuda_images(tag: str, row: Mapping[str, str]) -> list[CudaImage]:
    images = []
    for system, inside in row.items():
        if not system.startswith("ubuntu"):
            continue
        cudnn, _, status = inside.rpartition(" ")
        images.append(
            CudaImage(
                tag=f"{tag}-{system}",
                cuda=row["cuda"],
                os=system,
                cudnn=cudnn or None,
                status=status,
            )
        )
    return images


def has_cuda_wheels(minor: Minor, release: Release) -> bool:
    """Returns whether `cuda_from: wheels` works with a release."""
    return bool(minor.and_cuda) and release.version not in minor.and_cuda_broken


def gpu_of(service_name: str, matrix: Matrix) -> Gpu | None:
    """Finds the GPU that a service names, such as NVIDIA_A100_80GB; None if it is unknown."""
    words = f"_{service_name.upper().replace('-', '_')}_"
    named = [gpu for name, gpu in matrix.gpus.items() if f"_{name}_" in words]
    return max(named, key=lambda gpu: len(gpu.name)) if named else None
