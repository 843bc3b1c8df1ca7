"""Which files of an image matter, and what verify records of each.

`layers` reads archives with these patterns.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SITE = r"opt/venv/lib(?:64)?/python[\d.]+/site-packages/"
CUDA = r"cudart|cudnn\w*|cublas|cublasLt|cufft|cufftw|curand|cusolver|cusolverMg|cusparse|cupti|nccl|nvrtc|nvJitLink"
HEAD = 4096  # bytes of a suspect that are judged
LARGEST_TEXT = 16 << 20
LARGEST_SOURCE = 1 << 20  # bytes of a trainer's file that are parsed
LARGEST_SUSPECT = 64 << 10  # a file without a telling name is looked into up to this size

_KINDS = (
    ("metadata", re.compile(SITE + r"[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO|egg-info)\Z")),
    ("record", re.compile(SITE + r"[^/]+\.dist-info/RECORD\Z")),
    ("library", re.compile(r"(?:.*/)?lib(?:" + CUDA + r")\.so(?:\.[\d.]+)?\Z")),
    ("tool", re.compile(r"(?:.*/)?(?:ptxas|libdevice[\w.]*\.bc)\Z")),
    ("python", re.compile(r"(?:opt/venv/(?:bin/python[\d.]*|pyvenv\.cfg)|usr/(?:local/)?bin/python3[\d.]*)\Z")),
    ("module", re.compile(SITE + r"[^/]+\.(?:py|so)\Z")),
    ("source", re.compile(r"app/.*\.py\Z")),
    (
        "cache",
        re.compile(
            r"(?:(?:root|home/[^/]+)/\.cache/(?:pip|uv)/.+|opt/conda/pkgs/.+|var/cache/apt/(?:.*\.deb|.*\.bin)"
            r"|var/lib/apt/lists/(?!lock\Z|partial/|auxfiles/).+)\Z"
        ),
    ),
)
_WITH_TEXT = frozenset({"metadata", "record", "source"})
# Wider than the rule that decides (training_imgtool.context.secret_files): what is not fetched cannot be judged.
_TELLING = re.compile(
    r"(?:\A|/)(?:\.(?:aws|azure|gnupg|kube|ssh|docker|pip)/.*|\.config/(?:gcloud|pip)/.*|\.env(?:\.[^/]*)?|id_[a-z0-9_]+"
    r"|[^/]*(?:netrc|pypirc|npmrc|yarnrc|git-credentials|htpasswd|pgpass|my\.cnf|\.boto|dockercfg|dockerconfigjson"
    r"|kubeconfig|credential|secret|access_tokens|service[-_]?account|vault[-_]?pass|pip\.conf)[^/]*"
    r"|[^/]+\.(?:pem|key|p12|pfx|ppk|jks|keystore|kdbx|ovpn))\Z",
    re.IGNORECASE,
)
_CODE = re.compile(r".*\.(?:py|pyc|pyi|so[\d.]*|h|hpp|inc|html|md|rst|proto)\Z")
_SYSTEM = re.compile(r"(?:usr|lib\w*|s?bin|var/lib/dpkg|etc/ssl|opt/venv|opt/nvidia|opt/conda|proc|sys|dev)/")
_TOKENS = (b"PRIVATE KEY", b'"type"', b"PuTTY-User-Key")


def classify(path: str) -> str | None:
    """Says why a path (relative, slashes) matters: one of `_KINDS`, "telling" for a secret's name; or None."""
    for kind, pattern in _KINDS:
        if pattern.match(path):
            return kind
    return "telling" if _TELLING.search(path) and not _CODE.match(path) else None


def wants_look(path: str, size: int) -> bool:
    """Returns whether a file without a telling name is small and the image's own, and so is looked into."""
    return 0 < size <= LARGEST_SUSPECT and not _SYSTEM.match(path) and not _CODE.match(path)


def describe(
    path: str, kind: str | None, size: int, read: Callable[[int], bytes], link: str | None = None
) -> dict[str, Any] | None:
    """Returns what verify records of a file; None when its content is of no interest.

    Args:
        path: relative, slashes.
        kind: of `classify`; None for one that `wants_look`.
        size: bytes.
        read: gives at most so many bytes of the file.
        link: what a symbolic link points to.
    """
    fields: dict[str, Any] = {"path": path, "kind": kind, "size": size}
    if link is not None:
        fields["link"] = link
        return None if kind in {None, "telling", "cache", "source", "module"} else fields
    if kind in {"telling", None}:
        data = read(LARGEST_SUSPECT * 16)
        head = data[:HEAD]
        if kind is None and not any(token in head for token in _TOKENS):
            return None
        fields["kind"] = "suspect"
        fields["head"] = base64.b64encode(head).decode()
        fields["sha256"] = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    elif kind in _WITH_TEXT or path.endswith("pyvenv.cfg"):
        text = read(LARGEST_SOURCE if kind == "source" else LARGEST_TEXT).decode("utf-8", "replace")
        fields["text"] = text.replace("\r\n", "\n").split("\n\n", 1)[0] if kind == "metadata" else text
    return fields


def is_recorded(suspect: dict[str, Any], records: dict[str, str]) -> bool:
    """Returns whether a wheel's RECORD (by path) lists the suspect with these bytes: then it is part of a package."""
    for path, text in records.items():
        site = path.rsplit("/", 2)[0] + "/"
        if suspect["path"].startswith(site):
            row = suspect["path"][len(site) :] + ",sha256=" + suspect["sha256"] + ","
            if text.startswith(row) or "\n" + row in text:
                return True
    return False


def settle(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds to each suspect whether a package has it, and to each RECORD the names that it installs."""
    records = {fields["path"]: fields["text"] for fields in items if fields["kind"] == "record"}
    for fields in items:
        if fields["kind"] == "suspect":
            fields["recorded"] = is_recorded(fields, records)
        if fields["kind"] == "record":
            rows = fields["text"].splitlines()
            fields["names"] = sorted({row.split(",")[0].split("/")[0].split(".")[0] for row in rows} - {"", '"'})
    return items


def sum_folders(own: dict[str, int]) -> dict[str, int]:
    """Sums bytes below each folder, from the bytes right in each; folders under a thousandth of all are left out."""
    total: dict[str, int] = {}
    for folder, size in own.items():
        part = folder
        while True:
            total[part] = total.get(part, 0) + size
            if not part:
                break
            part = part.rpartition("/")[0]
    least = total.get("", 0) // 1000
    return {folder: size for folder, size in total.items() if size >= least}
