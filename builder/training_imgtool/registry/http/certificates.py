"""Certificates for one registry, from the folders that Docker and Podman read: `certs.d/HOST[:PORT]/`.

`*.crt` are authorities that this host's certificate may come from, beside those that the machine trusts; `NAME.cert`
and `NAME.key` are a client certificate and its key (docs.docker.com, "Verify repository client with certificates").
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from training_imgtool.core.errors import LocalFileError
from training_imgtool.core.http_pool import HostCertificates
from training_imgtool.registry.http.addresses import Origin


def find_certificates(folders: Iterable[Path], origin: Origin) -> HostCertificates:
    """What the first folder that exists for a host has; nothing where none does.

    The folder of a host on port 443 may have its port in its name or not. Raises LocalFileError where a folder cannot
    be read, or where a client certificate or its key is alone.
    """
    for folder in (parent / name for parent in folders for name in origin.names):
        try:
            files = sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise LocalFileError(f"{folder}: cannot be read: {error.strerror}") from error
        pairs = tuple((file, file.with_suffix(".key")) for file in files if file.suffix == ".cert")
        single = {file for file in files if file.suffix == ".cert"} ^ {
            file.with_suffix(".cert") for file in files if file.suffix == ".key"
        }
        if single:
            stem = min(single).with_suffix("")
            raise LocalFileError(
                f"{stem}: a client certificate is a file NAME.cert with its key in NAME.key, and one of them is missing"
            )
        return HostCertificates(tuple(file for file in files if file.suffix == ".crt"), pairs)
    return HostCertificates()
