"""Makes wheels of the few pure-Python packages that TensorFlow's older minors need and that have no wheel.

imgtool runs no code of the archive; it copies the modules and PKG-INFO. The result has the same bytes on every
machine (fixed order, dates and modes, no compression). So the lock can contain the wheel's hash, and any machine can
make the wheel again from the same archive.
"""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping

from training_imgtool.base.errors import VerificationError
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.versions.matrix import SourceArchive, load_matrix
from training_imgtool.resolve.wheels.index.index import Index

_DATE = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can express
_MODE = 0o100644 << 16
LARGEST_ARCHIVE = 64 << 20  # bytes
_MAX_BYTES = 8 << 20
_LICENSES = frozenset({"LICENSE", "LICENSE.txt", "COPYING", "COPYING.txt"})


def name_wheel(archive: SourceArchive) -> str:
    """Returns the name of the wheel's file."""
    return f"{archive.name}-{archive.version}-py3-none-any.whl"


def build_wheel(archive: SourceArchive, data: bytes) -> bytes:
    """Makes the wheel of a source archive.

    Args:
        archive: the archive's row, with its hash.
        data: the archive's bytes, a .tar.gz.

    Raises:
        VerificationError: the bytes have another hash, or do not contain the package.
    """
    digest = hashlib.sha256(data).hexdigest()
    if digest != archive.sha256:
        raise VerificationError(f"{archive.file}: sha256 {digest}, expected {archive.sha256}")
    root = f"{archive.file.removesuffix('.tar.gz')}/"
    members = _read_members(data, root)
    modules = {
        name.removeprefix("src/"): text
        for name, text in members.items()
        if name.endswith(".py") and _is_module(name.removeprefix("src/"), archive.name)
    }
    if not modules or "PKG-INFO" not in members:
        raise VerificationError(f"{archive.file} contains no package {archive.name}")
    info = f"{archive.name}-{archive.version}.dist-info"
    files = {
        **modules,
        f"{info}/METADATA": _make_metadata(members["PKG-INFO"]),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: imgtool 1\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/top_level.txt": f"{archive.name}\n".encode(),
        **{f"{info}/{name}": text for name, text in members.items() if name in _LICENSES},
    }
    return _write_zip({**files, f"{info}/RECORD": _record(files, f"{info}/RECORD")})


def remake_wheel(wheel: Wheel, index: Index) -> bytes | None:
    """Makes a wheel again from its archive; None if the matrix does not list the archive, or no index has it."""
    archive = load_matrix().sdists.get(f"{wheel.name}=={wheel.version}")
    if archive is None or name_wheel(archive) != wheel.file:
        return None
    found = index.locate(archive.name, archive.file, archive.sha256)
    return build_wheel(archive, b"".join(index.read(found.url, limit=LARGEST_ARCHIVE))) if found else None


def _read_members(data: bytes, root: str) -> dict[str, bytes]:
    members = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() and member.size <= _MAX_BYTES else None
            if stream is not None and member.name.startswith(root):
                members[member.name.removeprefix(root)] = stream.read()
    return members


def _is_module(path: str, name: str) -> bool:
    return path == f"{name}.py" or path.startswith(f"{name}/")


def _make_metadata(pkg_info: bytes) -> bytes:
    """Copies the fields of PKG-INFO, but sets Metadata-Version to 2.1, because wheels may not have 1.x."""
    _, _, rest = pkg_info.replace(b"\r\n", b"\n").partition(b"\n")
    return b"Metadata-Version: 2.1\n" + rest


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    lines = []
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{own},,\n"]).encode()


def _write_zip(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = _MODE
            entry.create_system = 3
            archive.writestr(entry, content)
    return stream.getvalue()
