"""Which of a release's wheels pip would choose, and what uv calls a platform. Sources: PEP 425, PEP 600."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
_ALIASES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_OLDEST = {"x86_64": 5, "aarch64": 17}  # glibc 2.N of the first manylinux tag of each
_UV_PLATFORMS = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)  # uv pip compile --help, --python-platform


def machine_of(platform: str) -> str:
    """Converts `linux/amd64` to `x86_64`; raises KeyError for a platform without TensorFlow wheels."""
    return MACHINES["/".join(platform.split("/")[:2])]


def name_uv_platform(platform: str, glibc: str) -> str:
    """Returns uv's name of the platform, with the newest manylinux version that `glibc` supports."""
    minor = int(glibc.split(".")[1])
    return f"{machine_of(platform)}-manylinux_2_{max(release for release in _UV_PLATFORMS if release <= minor)}"


def choose_wheel(files: Iterable[str], python: str, platform: str, glibc: str) -> str | None:
    """Returns the name among `files` that pip would choose for CPython `python`, or None if none fits."""
    order = _rank_tags(python, machine_of(platform), int(glibc.split(".")[1]))
    best: tuple[int, tuple[int, str], str] | None = None
    for file in files:
        try:
            _, _, build, tags = parse_wheel_filename(file)
        except ValueError:
            continue
        ranks = [order[tag] for tag in tags if tag in order]
        if not ranks:
            continue
        number = build or (0, "")
        candidate = (min(ranks), (-number[0], number[1]), file)
        if best is None or candidate < best:
            best = candidate
    return best[2] if best else None


@lru_cache(maxsize=16)
def _rank_tags(python: str, machine: str, glibc_minor: int) -> dict[Tag, int]:
    version = tuple(int(part) for part in python.split("."))
    name = "cp" + "".join(python.split("."))
    abi = f"{name}m" if version < (3, 8) else name  # tags have pymalloc's flag only before 3.8
    platforms = list(_list_platforms(machine, glibc_minor))
    ranks: dict[Tag, int] = {}
    tags = (
        *cpython_tags(version, abis=[abi], platforms=platforms),
        *compatible_tags(version, interpreter=name, platforms=platforms),
    )
    for rank, tag in enumerate(tags):
        ranks.setdefault(tag, rank)
    return ranks


def _list_platforms(machine: str, glibc_minor: int) -> Iterator[str]:
    for minor in range(glibc_minor, _OLDEST[machine] - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in _ALIASES:
            yield f"{_ALIASES[minor]}_{machine}"
    yield f"linux_{machine}"
