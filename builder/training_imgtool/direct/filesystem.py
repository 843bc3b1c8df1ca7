"""What is known of the base's folders without reading its layers, which is little; the rest is for an engine.

A layer that passes through a symbolic link, or that carries a folder which the base has with another mode,
would not be what an engine makes. So destinations are taken only where the Filesystem Hierarchy Standard
and Debian's base-files say what lies on the way, below folders that this Dockerfile made itself, or in a
folder of its own at the top (`/app`) that nothing in the base's config points to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from training_imgtool.core.errors import NeedsEngineError

_PLAIN = (
    "/boot /dev /etc /home /media /mnt /opt /proc /run /srv /sys /usr /usr/bin /usr/include /usr/lib /usr/local"
    " /usr/local/bin /usr/local/etc /usr/local/include /usr/local/lib /usr/local/sbin /usr/local/share"
    " /usr/local/src /usr/sbin /usr/share /usr/src /var /var/cache /var/lib /var/log /var/opt"
)
STANDARD: Mapping[str, int] = {"/": 0o755, "/root": 0o700, "/tmp": 0o1777, **dict.fromkeys(_PLAIN.split(), 0o755)}  # noqa: S108 - its mode
_INTO = ("/etc", "/opt", "/root", "/srv", "/tmp", "/usr/local")  # noqa: S108 - below these nothing special is expected
_UNSURE = frozenset({"bin", "lib", "lib32", "lib64", "libx32", "sbin", "snap", "lost+found"})  # links in a merged /usr


@dataclass(frozen=True, slots=True)
class Attributes:
    """A folder's mode and owner."""

    mode: int
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders known so far: what the base is sure to have, and what was made on top.

    Attributes:
        made: absolute paths of folders that layers of ours made.
        taken: names at the top that the base's config points to.
        texts: the instructions that engines ran below; a folder that they name is not ours to make.
    """

    made: Mapping[str, Attributes]
    taken: frozenset[str] = frozenset()
    texts: str = ""

    def known(self, path: str) -> Attributes | None:
        """The folder's attributes, or None when nothing is known of it."""
        if path in self.made:
            return self.made[path]
        return Attributes(STANDARD[path]) if path in STANDARD else None

    def with_made(self, folders: Mapping[str, Attributes]) -> Folders:
        """With folders that a layer made."""
        return replace(self, made={**self.made, **folders})

    def check(self, path: str) -> None:
        """Raises NeedsEngineError when it is not known what putting something at `path` (absolute) goes through."""
        top = path.split("/")[1]
        if path in self.made or any(parent in self.made for parent in parents(path)):
            return
        if f"/{top}" in STANDARD and not any(path == into or path.startswith(f"{into}/") for into in _INTO):
            raise NeedsEngineError(f"{path}: what the base has in /{top} is not known without an engine")
        if top in _UNSURE or top in self.taken:
            raise NeedsEngineError(f"{path}: the base may have /{top} in a way of its own")

    def check_new(self, folder: str) -> None:
        """Raises NeedsEngineError when an engine's instruction may have made `folder` already."""
        if re.search(rf"{re.escape(folder)}(?![\w.-])", self.texts):
            raise NeedsEngineError(f"{folder}: a stage that an engine builds names it too")


def base_folders(settings: Mapping[str, Any], texts: str = "") -> Folders:
    """What is known on an image with these run settings, made by an engine from `texts`."""
    named = [str(settings.get("WorkingDir") or "/"), *(settings.get("Volumes") or ())]
    tops = {path.split("/")[1] for path in named if path.strip("/")}
    return Folders({}, frozenset(top for top in tops if f"/{top}" not in STANDARD), texts)


def parents(path: str) -> Iterator[str]:
    """The folders above an absolute path, the nearest last, `/` left out."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        yield "/" + "/".join(parts[:count])
