"""Small Debian packages, made by dpkg-deb, and a small Debian system for them."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from imgtool_debian_layers import BaseSystem, Node, Package
from tests.servers.running import running

needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not installed")
needs_apt = pytest.mark.skipif(
    not shutil.which("apt-get") or not shutil.which("dpkg-deb"), reason="apt-get or dpkg-deb is not installed"
)

FOLDERS = (
    "/etc",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/lib/dpkg",
    "/var/lib/dpkg/info",
)
STATUS = """\
Package: libc-bin
Status: install ok installed
Architecture: amd64
Version: 2.36-9

"""


def system(texts: Mapping[str, str] | None = None, nodes: Mapping[str, Node] | None = None) -> BaseSystem:
    """A merged-usr system with one package; `texts` and `nodes` are added to it."""
    contents = {
        "/var/lib/dpkg/status": STATUS,
        "/etc/passwd": "root:x:0:0::/root:/bin/sh\n",
        "/etc/group": "root:x:0:\n",
    }
    contents |= texts or {}
    every = {path: Node("d", 0o755) for path in ("/", *FOLDERS)}
    every |= {"/bin": Node("l", 0o777, target="usr/bin"), "/lib": Node("l", 0o777, target="usr/lib")}
    every |= {path: Node("f") for path in contents}
    return BaseSystem({**every, **(nodes or {})}, {path: text.encode() for path, text in contents.items()})


def make_package(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    control: Mapping[str, str] | None = None,
    *,
    fields: str = "",
    compression: str = "xz",
    version: str = "1.0-1",
) -> tuple[Package, Path]:
    """A package: files by absolute path (`-> TARGET` for a link), and further control files."""
    root = folder / name
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            place.symlink_to(text.removeprefix("-> "))
        else:
            place.write_text(text)
    (root / "DEBIAN").mkdir(parents=True)
    for path, text in (control or {}).items():
        (root / "DEBIAN" / path).write_text(text)
        (root / "DEBIAN" / path).chmod(0o755 if text.startswith("#!") else 0o644)
    head = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Nobody <nobody@example.com>\n"
    (root / "DEBIAN/control").write_text(f"{head}{fields}Description: {name}\n more text\n")
    file = folder / f"{name}_{version}_amd64.deb"
    command = ["dpkg-deb", "--root-owner-group", f"-Z{compression}", "--build", str(root), str(file)]
    subprocess.run(command, check=True, capture_output=True)
    data = file.read_bytes()
    package = Package(
        name=name,
        version=version,
        architecture="amd64",
        file=f"pool/main/{file.name}",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
    )
    return package, file


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An archive's address, and its folder."""
    folder = tmp_path / "archive"
    (folder / "pool/main").mkdir(parents=True)
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with running(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as host:
        yield f"http://{host}", folder


def offer(folder: Path, version: str = "1.0-1", fields: str = "") -> Package:
    """Has the archive offer one version of the package `first`, and no other."""
    place = folder / version
    place.mkdir()
    package, path = make_package(place, "first", {"/usr/bin/tool": version}, version=version)
    file = f"./{path.relative_to(folder)}"
    (folder / "Packages").write_text(
        f"Package: first\nVersion: {version}\nArchitecture: amd64\nFilename: {file}\nSize: {package.size}\n"
        f"SHA256: {package.sha256}\n{fields}Description: first\n\n"
    )
    return replace(package, file=file)


def make_archive(base: BaseSystem) -> bytes:
    """The layer of a base."""
    kinds = {"d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "f": tarfile.REGTYPE}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for path, node in base.nodes.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode, entry.linkname = kinds[node.kind], node.mode, node.target
            entry.size = len(base.texts.get(path, b""))
            tar.addfile(entry, io.BytesIO(base.texts.get(path, b"")))
    return data.getvalue()
