"""Packages as bytes that dpkg-deb does not write."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from imgtool_debian_layers import DamagedError, DebianError, NeedsAptError
from imgtool_debian_layers.package_file import read_files


def deb(name: str, kind: bytes = tarfile.REGTYPE, *, member: str = "data.tar") -> bytes:
    """A package with one path, in an ar archive (deb(5))."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type = kind
        archive.addfile(entry)
    members = ((b"debian-binary", b"2.0\n"), (member.encode(), data.getvalue()))
    return b"!<arch>\n" + b"".join(
        b"%-16b%-12d%-6d%-6d%-8d%-10d`\n" % (name, 0, 0, 0, 100644, len(part)) + part for name, part in members
    )


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (deb("./../x"), DamagedError, r"the path './\.\./x' is not normalized"),
        (deb("./usr/./x"), DamagedError, "is not normalized"),
        (deb("./usr/x\ny"), DamagedError, "is not normalized"),
        (deb("./dev/null", tarfile.CHRTYPE), NeedsAptError, "/dev/null is a device"),
        (deb("./x", member="data.tar.lz4"), NeedsAptError, r"data\.tar\.lz4 has an unknown compression"),
        (deb("./x", member="data.tar.zst"), DamagedError, r"data\.tar is damaged"),
        (deb("./x").replace(b"2.0\n", b"3.0\n"), DamagedError, "not a Debian package of version 2"),
    ],
    ids=lambda value: "package" if isinstance(value, bytes) else None,
)
def test_what_is_not_plain_is_refused(tmp_path: Path, data: bytes, error: type[DebianError], reason: str) -> None:
    file = tmp_path / "first.deb"
    file.write_bytes(deb("./x"))
    assert [packed.path for packed in read_files(file)] == ["/x"]
    file.write_bytes(data)
    with pytest.raises(error, match=reason):
        list(read_files(file))
