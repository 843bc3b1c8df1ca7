r"""Makes the RUN instruction with which buildx installs Debian packages."""

from __future__ import annotations

import shlex

from training_imgtool.model.lock import Variant

DEADSNAKES_KEY = "F23C5A6CF475977595C89F51BA6932366A755776"  # as shown by launchpad.net/~deadsnakes/+archive/ubuntu/ppa
DRIVER_PATH = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
"""The folder in which GKE and Vertex AI mount the driver."""
CUDA_LIBRARY_PATH = f"{DRIVER_PATH}:/usr/local/cuda/lib64"
"""The LD_LIBRARY_PATH that the template gives images on CUDA bases."""
_DEADSNAKES = rf"""    apt-get install --yes --no-install-recommends ca-certificates; \
    /usr/lib/apt/apt-helper download-file \
        "https://keyserver.ubuntu.com/pks/lookup?op=get&search=0x{DEADSNAKES_KEY}" \
        /etc/apt/trusted.gpg.d/deadsnakes.asc; \
    codename="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)"; \
    echo "deb [signed-by={DEADSNAKES_KEY}] https://ppa.launchpadcontent.net/deadsnakes/ppa/ubuntu $codename main" \
        > /etc/apt/sources.list.d/deadsnakes.list; \
    apt-get update; \
"""


def apt_packages(variant: Variant, system_packages: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the packages of the `system` stage, sorted: `system_packages`, and Python if the base lacks it."""
    wanted = set(system_packages)
    if variant.python_from in {"apt", "deadsnakes"}:
        wanted |= {f"python{variant.python}", "ca-certificates"}
        if tuple(int(part) for part in variant.python.split(".")) < (3, 10):
            # pip imports distutils in these versions, and Debian and its derivatives have a separate package for it
            # (pip/_internal/locations).
            wanted.add("python3-distutils" if variant.python_from == "apt" else f"python{variant.python}-distutils")
    return tuple(sorted(wanted))


def library_check(libraries: tuple[str, ...]) -> str:
    """Returns a Python program that opens each library, without a GPU, so a build already fails on a wrong base."""
    if not libraries:
        return ""
    names = ", ".join(f'"{name}"' for name in libraries)
    return f"import ctypes; [ctypes.CDLL(name) for name in [{names}]]"


def install_script(variant: Variant, packages: tuple[str, ...], libraries: tuple[str, ...]) -> str:
    """Returns the argument of RUN.

    Args:
        variant: has the Python to install, from deadsnakes' archive if `python_from` says so.
        packages: the packages for apt, at least one.
        libraries: sonames that the script opens afterwards.
    """
    named = " \\\n".join(f"        {package}" for package in packages)
    check = f"    {variant.python_executable} -c {shlex.quote(library_check(libraries))}; \\\n" if libraries else ""
    return (
        "set -eu; \\\n"
        "    export DEBIAN_FRONTEND=noninteractive; \\\n"
        "    apt-get update; \\\n"
        f"{_DEADSNAKES if variant.python_from == 'deadsnakes' else ''}"
        "    apt-get install --yes --no-install-recommends \\\n"
        f"{named}; \\\n"
        f"{check}"
        "    apt-get clean; \\\n"
        "    rm -rf /var/lib/apt/lists/* /var/log/apt/* /var/log/dpkg.log /var/log/alternatives.log \\\n"
        "        /var/cache/ldconfig/aux-cache"
    )
