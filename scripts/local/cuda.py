"""A stand-in for an nvidia/cuda base: a real Ubuntu 22.04, with CUDA and cuDNN laid out as NVIDIA's image has them.

The libraries are NVIDIA's own, in the versions of the image, from their wheels on the package index. What else
the image has (its Debian packages' records, compat libraries, npp, cufile) is not there, and no GPU is needed.
About 1.7 GB come in, 2.7 GB lie in the image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from hashlib import sha256
from pathlib import Path

from local import machine
from local.machine import UnavailableError

# What nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04 holds, as wheels; the versions are those of its Dockerfiles.
WHEELS = (
    "nvidia-cublas-cu12==12.2.5.6 --hash=sha256:f448d8db463f9a2c7dd9a1e607c0961d3e95f825b86839c5882f7d073d406df0",
    "nvidia-cuda-nvrtc-cu12==12.2.140 --hash=sha256:b1cdcae6443cb7cdcfb5d1bf51896a148c9f82f9e65b27db9ab095eaed689aa7",
    "nvidia-cuda-runtime-cu12==12.2.140 --hash=sha256:acb9cb7e44594a3512533497ea790d9f0b0e399abcc888584c157d1ffa080e41",
    "nvidia-cudnn-cu12==8.9.6.50 --hash=sha256:02fbdf6a9f00ba88da68b275d1f175111cc01bbe2294fb688cd309fd61af8844",
    "nvidia-cufft-cu12==11.0.8.103 --hash=sha256:72e961e578f9be9e316ccb4db8652c421dd0b57442624faa71061d452f449a67",
    "nvidia-curand-cu12==10.3.3.141 --hash=sha256:7b6bad6817b5df2a6f5ec221206fb895d9195fdd7d2443f3e86554108c141a0a",
    "nvidia-cusolver-cu12==11.5.2.141 --hash=sha256:5a85c4653ce34339a5688137f494a0f903e0f0532418550998167f00844161da",
    "nvidia-cusparse-cu12==12.1.2.141 --hash=sha256:4e13d6a51d2303dcb2a023ba09546811161f0334fc64e13689397bbd3b1eb126",
    "nvidia-nccl-cu12==2.19.3 --hash=sha256:a9734707a2c96443331c1e48c717024aa6678a0e2a4cb66b2c364d18cee6b48d",
    "nvidia-nvjitlink-cu12==12.2.140 --hash=sha256:95635cafbf9f96c38bea5200ab145a2e6aefbb5405e0b04c1e4ba54df2d84ec9",
)
_SYSTEM = {"cudnn", "nccl"}  # in /usr/lib/x86_64-linux-gnu; the others lie with the toolkit
_TOOLKIT = "usr/local/cuda-12.2/targets/x86_64-linux/lib"
_KEYRING = "ubuntu-keyring_2021.03.26_all.deb"
_KEYRING_URL = f"http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/{_KEYRING}"
_KEYRING_SHA256 = "0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f"
_ENTRYPOINT = '#!/bin/sh\n# Stands where the image has NVIDIA\'s banner.\nexec "$@"\n'


def keyring(folder: Path) -> Path:
    """Ubuntu's archive keys, from the package that carries them, known by its hash."""
    package = folder / _KEYRING
    try:
        with urllib.request.urlopen(_KEYRING_URL, timeout=60) as answer:
            package.write_bytes(answer.read())
    except OSError as error:
        raise UnavailableError(f"Ubuntu's archive does not answer: {error}") from error
    digest = sha256(package.read_bytes()).hexdigest()
    if digest != _KEYRING_SHA256:
        raise UnavailableError(f"{_KEYRING}: expected sha256 {_KEYRING_SHA256}, found {digest}")
    subprocess.run(["dpkg-deb", "-x", package, folder / "keyring"], check=True)
    return folder / "keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg"


def overlay(folder: Path) -> Path:
    """A folder tree that is laid over Ubuntu: libraries under their full versions with the links that are loaded."""
    wheels, root = folder / "wheels", folder / "overlay"
    for old in (wheels, root):
        shutil.rmtree(old, ignore_errors=True)
    _install(folder, wheels)
    toolkit, system = root / _TOOLKIT, root / "usr/lib/x86_64-linux-gnu"
    for place in (toolkit, system):
        place.mkdir(parents=True)
    for requirement in WHEELS:
        name, _, version = requirement.split()[0].partition("==")
        part = name.removeprefix("nvidia-").removesuffix("-cu12").replace("-", "_")
        target = system if part in _SYSTEM else toolkit
        for library in sorted((wheels / "nvidia" / part / "lib").glob("*.so.*")):
            stem, _, _ = library.name.partition(".so.")
            full = f"{stem}.so.{'.'.join(version.split('.')[:3]) if part in _SYSTEM else version}"
            library.rename(target / full)
            (target / library.name).symlink_to(full)
    _write(root / "etc/ld.so.conf.d/000_cuda.conf", "/usr/local/cuda/targets/x86_64-linux/lib\n")
    _write(root / "etc/ld.so.conf.d/nvidia.conf", "/usr/local/nvidia/lib\n/usr/local/nvidia/lib64\n")
    _write(root / "opt/nvidia/nvidia_entrypoint.sh", _ENTRYPOINT, mode=0o755)
    (root / "usr/local/cuda").symlink_to("/usr/local/cuda-12.2")
    (root / "usr/local/cuda-12.2/lib64").symlink_to("targets/x86_64-linux/lib")
    shutil.rmtree(wheels)
    return root


def _install(folder: Path, target: Path) -> None:
    uv = next(filter(None, (shutil.which(str(machine.CHECKOUT / ".venv/bin/uv")), machine.program("uv"))), None)
    if not uv:
        raise UnavailableError("uv is needed for CUDA's libraries: run `make venv` first")
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(WHEELS) + "\n")
    command = [uv, "pip", "install", "--quiet", "--target", str(target), "--no-deps", "--require-hashes"]
    command += ["--python-version", "3.10", "--python-platform", "x86_64-unknown-linux-gnu", "--link-mode", "copy"]
    done = subprocess.run([*command, "-r", str(requirements)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"CUDA's libraries: {done.stderr.strip()[-300:]}")


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.chmod(path, mode)  # noqa: PTH101 - beside write_text it reads as one step
