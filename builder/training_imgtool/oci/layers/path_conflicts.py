"""Summarises a layer's paths as claims. With claims, imgtool finds conflicts of layers without the layers' wheels.

A folder of site-packages that directly contains a file other than `__init__.py` is one claim for everything below the
folder, because one wheel owns such a package. Several wheels may share any other folder (a namespace package), so
each file in it is a separate claim, with the hash of the file's content. Below a shared folder, a folder that directly
contains files has a claim without a hash for each file: nvidia/cu13/lib holds gigabytes of several wheels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from training_imgtool.base.wheel_zip import hash_content
from training_imgtool.oci.layers.layers import list_parents
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Kind

_SHARED = "__init__.py"
_DIGITS = 32
_UNKNOWN = "?"

Claims = Mapping[str, str]
"""Claims by path. A whole folder ends in `/` and has no value. Other values depend on mode and content, or are `?`."""


def find_claims(items: Iterable[Item], site: str) -> dict[str, str]:
    """Returns the claims of one layer.

    Args:
        items: the layer's items.
        site: the path of site-packages in the layer.

    Raises:
        VerificationError: a wheel is damaged; LocalFileError: it cannot be read.
    """
    files = [item for item in items if item.entry.kind is not Kind.FOLDER]
    top = f"{site.strip('/')}/"
    owned = {folder for item in files if (folder := _find_owned_folder(item.entry.path, top))}
    claimed: dict[str, str] = {}
    for item in files:
        path = item.entry.path
        folder = next((above for above in list_parents(path) if above in owned), None)
        if folder and "/" not in folder.removeprefix(top):
            claimed[f"{folder}/"] = ""
        else:
            claimed[path] = _UNKNOWN if folder else _identify(item)
    return claimed


def find_overlaps(claims: Mapping[str, Claims]) -> set[str]:
    """Returns the keys of `claims` that may conflict: their layers may have the same path with different content."""
    holders: dict[str, dict[str, str]] = {}
    for name, claimed in claims.items():
        for path, identity in claimed.items():
            holders.setdefault(path.rstrip("/"), {})[name] = f"/{identity}" if path.endswith("/") else identity
    names: set[str] = set()
    for path, owners in holders.items():
        identities = {*owners.values()}
        if len(owners) > 1 and (len(identities) > 1 or identities & {"/", _UNKNOWN}):
            names.update(owners)
        for above in list_parents(path):
            others = holders.get(above, {}).keys()
            if others and len(others | owners.keys()) > 1:
                names.update(owners, others)
    return names


def _find_owned_folder(path: str, top: str) -> str | None:
    """Returns the file's folder if the file shows that one wheel owns the folder, else None."""
    folder, _, name = path.rpartition("/")
    return folder if folder.startswith(top) and name != _SHARED else None


def _identify(item: Item) -> str:
    entry = item.entry
    return f"{entry.kind}{entry.mode:o}:{hash_item(item)[:_DIGITS]}"


def hash_item(item: Item) -> str:
    """Returns the hash of a file's content, or of a link's target."""
    digest = hashlib.sha256(item.data)
    if item.wheel and item.member:
        hash_content(item.wheel, item.member, digest)
    digest.update(item.entry.target.encode())
    return digest.hexdigest()
