"""Which paths a layer's wheels claim, in few words, so that a clash between wheels is seen without the wheels.

Below site-packages a folder that holds files of its own stands for all that is in it: a package is one
wheel's. A folder that holds nothing but folders, or `__init__.py`, may be shared by many (namespace packages),
so what is in it is claimed piece by piece. Every other path stands for itself, with its content's hash.
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

Claims = Mapping[str, str]
"""Paths: a whole folder ends in `/` and has an empty value; another's value changes with mode and content."""


def find_claims(items: Iterable[Item], site: str) -> dict[str, str]:
    """Maps each top-level path to the layer group that writes below it.

    Args:
        items: those of one layer.
        site: site-packages as the entries name it.

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
        if folder:
            claimed[f"{folder}/"] = ""
        else:
            claimed[path] = _identify(item)
    return claimed


def find_overlaps(claims: Mapping[str, Claims]) -> set[str]:
    """Finds the names of those that may hold one path with different content; the others cannot."""
    holders: dict[str, dict[str, str]] = {}
    for name, claimed in claims.items():
        for path, identity in claimed.items():
            holders.setdefault(path.rstrip("/"), {})[name] = f"/{identity}" if path.endswith("/") else identity
    names: set[str] = set()
    for path, owners in holders.items():
        if len(owners) > 1 and (len({*owners.values()}) > 1 or "/" in owners.values()):
            names.update(owners)
        for above in list_parents(path):
            others = holders.get(above, {}).keys()
            if others and len(others | owners.keys()) > 1:
                names.update(owners, others)
    return names


def _find_owned_folder(path: str, top: str) -> str | None:
    """Finds the folder that a file makes its wheel's own."""
    folder, _, name = path.rpartition("/")
    return folder if folder.startswith(top) and name != _SHARED else None


def _identify(item: Item) -> str:
    entry = item.entry
    return f"{entry.kind}{entry.mode:o}:{hash_item(item)[:_DIGITS]}"


def hash_item(item: Item) -> str:
    """Hashes the hash of a file's content or of a link's target."""
    digest = hashlib.sha256(item.data)
    if item.wheel and item.member:
        hash_content(item.wheel, item.member, digest)
    digest.update(item.entry.target.encode())
    return digest.hexdigest()
