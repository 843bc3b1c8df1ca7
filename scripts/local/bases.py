"""Stand-in base images: Debian packages in place of images that cannot be pulled here, under the images' real names.

They hold what a role's image needs of its base (an interpreter at the same path, the same environment) and
nothing proves more than that: what runs in production is the real base, named in the same way and pinned by digest.
An image that lies in the registry under the name and is not one of these is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from local import cuda, machine, newer_debian, push
from local.machine import UnavailableError

LABEL = "dev.imgtool.stand-in"
_EPOCH = "1735689600"  # 2025-01-01, the date of every file and image that is made here
_CREATED = "2025-01-01T00:00:00Z"
UBUNTU = ("jammy",)  # suites whose archive keys Debian has not
_EXCLUDED = ("man", "doc", "info", "locale", "lintian", "bash-completion")


@dataclass(frozen=True)
class Base:
    """One stand-in: the image it stands for and the Debian packages it is made of."""

    repository: str
    tag: str
    packages: tuple[str, ...]
    suite: str = "bookworm"
    links: tuple[tuple[str, str], ...] = ()  # path in the image, what it points to
    env: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    components: str = "main"
    wheels: tuple[str, ...] = ()  # laid over the system by `local.cuda`
    level: int = 6  # gzip's: 1 for what is big and hardly shrinks
    labels: dict[str, str] = field(default_factory=dict)
    bytecode: bool = True  # without, as Docker's Python images, whose Dockerfile deletes every .pyc file
    python: str = ""  # the package whose version the image says in PYTHON_VERSION; or `pyenv MINOR`, see _copy_pyenv

    @property
    def name(self) -> str:
        """The image this stands for, as people write it."""
        return f"{self.repository.removeprefix('library/')}:{self.tag}"

    @property
    def host(self) -> str:
        """The registry of the image this stands for."""
        return "gcr.io" if self.repository.startswith("distroless/") else "docker.io"

    @property
    def pyenv(self) -> str:
        """The minor version of pyenv's Python that the image has; empty without one."""
        return self.python.removeprefix("pyenv ") if self.python.startswith("pyenv ") else ""

    @property
    def recipe(self) -> str:
        """A hash of everything above: a base made by another recipe is made again."""
        parts = json.dumps([self.__dict__, _EPOCH, _EXCLUDED], sort_keys=True, default=list)
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


PYTHON = Base(
    repository="library/python",
    tag="3.11-slim-bookworm",
    packages=("ca-certificates", "media-types", "netbase", "python3", "python3-distutils", "python3-lib2to3", "tzdata"),
    # The image has its Python in /usr/local; Debian's finds its library and site-packages from there too.
    links=(
        ("/usr/local/bin/python3.11", "/usr/bin/python3.11"),
        ("/usr/local/bin/python3", "python3.11"),
        ("/usr/local/bin/python", "python3.11"),
    ),
    env=("PATH=/usr/local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"),
    cmd=("python3",),
    bytecode=False,
    python="python3.11-minimal",
)

# Ubuntu 22.04's Python and C library, which are the nearest among distributions: Debian 12 has 3.11 alone.
PYTHON_3_10 = Base(
    repository="library/python",
    tag="3.10-slim-bookworm",
    packages=("ca-certificates", "media-types", "netbase", "python3", "python3-distutils", "tzdata", "ubuntu-keyring"),
    suite="jammy",
    components="main,universe",
    links=(
        ("/usr/local/bin/python3.10", "/usr/bin/python3.10"),
        ("/usr/local/bin/python3", "python3.10"),
        ("/usr/local/bin/python", "python3.10"),
    ),
    env=PYTHON.env,
    cmd=("python3",),
    bytecode=False,
    python="python3.10-minimal",
)

# TensorFlow 1.15 needs 3.7, which no archive of today has: pyenv's build of it, on the libraries of Debian 12.
PYTHON_3_7 = Base(
    repository="library/python",
    tag="3.7-slim-bookworm",
    packages=("ca-certificates", "libbz2-1.0", "libcrypt1", "libffi8", "liblzma5", "libncursesw6", "libnsl2",
              "libreadline8", "libsqlite3-0", "libssl3", "libuuid1", "media-types", "netbase", "tzdata", "zlib1g"),
    links=(("/usr/local/bin/python3", "python3.7"), ("/usr/local/bin/python", "python3.7")),
    env=PYTHON.env,
    cmd=("python3",),
    python="pyenv 3.7",
)  # fmt: skip

# The whole images have venv and pip's wheel, which Debian packs apart.
PYTHONS = tuple(
    replace(
        PYTHON_3_7,
        tag=f"{minor}-bookworm",
        links=(("/usr/local/bin/python3", f"python{minor}"), ("/usr/local/bin/python", f"python{minor}")),
        python=f"pyenv {minor}",
    )
    for minor in ("3.11", "3.12", "3.13")
)

CUDA = Base(
    repository="nvidia/cuda",
    tag="12.2.2-cudnn8-runtime-ubuntu22.04",
    packages=("apt", "ca-certificates", "ubuntu-keyring"),
    suite="jammy",
    components="main,universe",
    wheels=cuda.WHEELS,
    level=1,
    env=(
        "PATH=/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "NVARCH=x86_64",
        "NVIDIA_REQUIRE_CUDA=cuda>=12.2",
        "NV_CUDA_CUDART_VERSION=12.2.140-1",
        "CUDA_VERSION=12.2.2",
        "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "NV_CUDA_LIB_VERSION=12.2.2-1",
        "NCCL_VERSION=2.19.3-1",
        "NVIDIA_PRODUCT_NAME=CUDA",
        "NV_CUDNN_VERSION=8.9.6.50",
        "NV_CUDNN_PACKAGE_NAME=libcudnn8",
    ),
    entrypoint=("/opt/nvidia/nvidia_entrypoint.sh",),
    labels={
        "com.nvidia.cudnn.version": "8.9.6.50",
        "org.opencontainers.image.ref.name": "ubuntu",
        "org.opencontainers.image.version": "22.04",
    },
)

# Google's image of Python and what it needs, no shell, no apt: Debian's packages as they are, without their scripts.
DISTROLESS = Base(
    repository="distroless/python3-debian12",
    tag="nonroot",
    packages=("base-files", "ca-certificates", "gcc-12-base", "libbz2-1.0", "libc6", "libcom-err2", "libcrypt1",
              "libdb5.3", "libexpat1", "libffi8", "libgcc-s1", "libgomp1", "libgssapi-krb5-2", "libk5crypto3",
              "libkeyutils1", "libkrb5-3", "libkrb5support0", "liblzma5", "libncursesw6", "libnsl2",
              "libpython3.11-minimal", "libpython3.11-stdlib", "libreadline8", "libsqlite3-0", "libssl3",
              "libstdc++6", "libtinfo6", "libtirpc3", "libuuid1", "media-types", "netbase", "python3-distutils",
              "python3.11-minimal", "tzdata", "zlib1g"),
    links=(("/usr/bin/python", "/usr/bin/python3.11"), ("/usr/bin/python3", "/usr/bin/python3.11")),
    env=("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
         "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "LANG=C.UTF-8"),
    entrypoint=("/usr/bin/python3.11",),
)  # fmt: skip
_USERS = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"


def up(base: Base, address: str) -> str:
    """Makes sure that the registry has the base; returns what to tell the user. Raises UnavailableError."""
    registry = push.Registry(address)
    try:
        labels = registry.labels(base.repository, base.tag)
        if labels is not None and LABEL not in labels:
            return f"{base.name} is in the registry, and not a stand-in: left as it is"
        if labels is not None and labels[LABEL] == base.recipe:
            return f"{base.name} (a stand-in) is in the registry"
        layer = _layer(base)
        config = {
            "Env": [*base.env, *_python_version(base, layer)],
            "Cmd": list(base.cmd) or None,
            "Entrypoint": list(base.entrypoint) or None,
            "Labels": {**base.labels, LABEL: base.recipe, f"{LABEL}.for": f"{base.host}/{base.repository}:{base.tag}"},
        }
        digest = registry.put_image(
            base.repository, base.tag, [layer], config, created=_CREATED, scratch=layer.path.parent
        )
    except push.PushError as error:
        raise UnavailableError(str(error)) from error
    return f"{base.name} (a stand-in, {layer.size >> 20} MB) pushed as {digest[:19]}…"


def _layer(base: Base) -> push.Layer:
    folder = machine.STATE / "bases" / base.recipe
    target = folder / "layer.tar.gz"
    if present := push.compressed(target):
        return present
    folder.mkdir(parents=True, exist_ok=True)
    tar = folder / "root.tar"
    (_lay_out if base.host == "gcr.io" else _bootstrap)(base, tar)
    layer = push.compress(tar, target, base.level)
    tar.unlink()
    for rest in ("overlay", "keyring"):
        shutil.rmtree(folder / rest, ignore_errors=True)
    return layer


def _python_version(base: Base, layer: push.Layer) -> list[str]:
    """What Docker's Python images say of themselves: `PYTHON_VERSION=3.11.2`, from pyenv or dpkg's list of packages."""
    if base.pyenv:
        return [f"PYTHON_VERSION={_pyenv(base).name}"]
    if not base.python:
        return []
    with tarfile.open(layer.path, "r|gz") as tar:
        files = (tar.extractfile(entry) for entry in tar if entry.name.endswith("var/lib/dpkg/status"))
        text = next(file.read().decode() for file in files if file)
    version = re.search(rf"^Package: {re.escape(base.python)}\n(?:.+\n)*?Version: ([0-9.]+)", text, re.MULTILINE)
    return [f"PYTHON_VERSION={version[1]}"] if version else []


def _bootstrap(base: Base, tar: Path) -> None:
    """Writes the file system of the base; the same packages give the same bytes."""
    if os.geteuid() != 0 and not machine.program("newuidmap"):
        raise UnavailableError(f"{base.name}: a stand-in is made by root, or by a user who has the package uidmap")
    mmdebstrap = machine.need("mmdebstrap", "mmdebstrap")
    machine.say(f"making a stand-in for {base.name} from packages of {base.suite}")
    hooks = [f'ln -sf "{target}" "$1{path}"' for path, target in base.links]
    options = []
    if base.suite in UBUNTU:
        options.append(f"--keyring={cuda.keyring(tar.parent)}")
    if base.wheels:
        hooks.append(f'cp -a --no-preserve=ownership "{cuda.overlay(tar.parent)}/." "$1/" && chroot "$1" ldconfig')
    if not base.bytecode:
        hooks.append('find "$1/usr" -name __pycache__ -prune -exec rm -rf {} +')
    if base.pyenv:
        hooks.insert(0, _copy_pyenv(_pyenv(base), base.pyenv))
    command = [
        mmdebstrap,
        "--variant=minbase",
        "--architectures=amd64",
        f"--include={','.join(base.packages)}",
        f"--components={base.components}",
        *options,
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _EXCLUDED),
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--customize-hook={hook}" for hook in hooks),
        '--customize-hook=rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap',
        '--customize-hook=rm -f "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var/cache/ldconfig/aux-cache',
        base.suite,
        str(tar),
    ]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": _EPOCH}
    done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()
        raise UnavailableError(f"{base.name}: mmdebstrap failed: {' '.join(lines[-2:])}")


def _lay_out(base: Base, tar: Path) -> None:
    """Writes the file system of a base whose packages' scripts never ran."""
    unpacked = newer_debian.unpack("distroless", base.packages, release=base.suite)
    root = tar.with_name("root")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(unpacked, root, symlinks=True, ignore=lambda _, names: {*names} & {*_EXCLUDED})
    shutil.copytree(unpacked.parent / "control", root / "var/lib/dpkg/status.d")
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    texts = {
        "etc/ssl/certs/ca-certificates.crt": "".join(path.read_text() for path in certificates),
        "etc/passwd": _USERS,
        "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for path, target in base.links:
        (root / path[1:]).symlink_to(target)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    owner = ("--owner=0", "--group=0", "--numeric-owner", f"--mtime=@{_EPOCH}")
    subprocess.run(["tar", "--create", "--sort=name", *owner, f"--file={tar}", f"--directory={root}", "."], check=True)
    shutil.rmtree(root)


def _pyenv(base: Base) -> Path:
    """The folder of pyenv's newest Python of the base's minor version; raises UnavailableError without one."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    patches = [path.name.rpartition(".")[2] for path in (root / "versions").glob(f"{base.pyenv}.*")]
    newest = max((int(patch) for patch in patches if patch.isdigit()), default=None)
    if newest is None:
        raise UnavailableError(f"{base.name}: pyenv has no Python {base.pyenv}: pyenv install {base.pyenv}")
    return root / "versions" / f"{base.pyenv}.{newest}"


def _copy_pyenv(prefix: Path, minor: str) -> str:
    """A shell line that copies an installation to /usr/local, without what compiles, tests and draws with it."""
    library = f"lib/python{minor}"
    left_out = ("test", "idlelib", "tkinter", "site-packages", f"config-{minor}*", "__pycache__", "*.pyc", "*.a")
    excludes = " ".join(f"--exclude='{name}'" for name in left_out)
    pack = f"tar -c {excludes} bin/python{minor} {library} lib/libpython*.so*"
    unpack = 'tar -x --no-same-owner -C "$1/usr/local"'
    rest = f'mkdir "$1/usr/local/{library}/site-packages" && chroot "$1" ldconfig'
    return f'(cd "{prefix}" && {pack}) | {unpack} && {rest}'
