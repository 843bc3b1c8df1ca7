"""The archives that a base names in its sources, for apt and for downloads; a mirror of the machine replaces a host.

No archive's address is part of a lock or a key: a package is known by its sha256.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from training_imgtool.core.settings import Settings
from training_imgtool.debian.base_system import BaseSystem

_URL = re.compile(r"(?:mirror\+)?https?://[^\s\]]+")
_SOURCES = re.compile(r"/etc/apt/(?:sources\.list|sources\.list\.d/.+\.(?:list|sources))")
_KEY_FOLDERS = ("/usr/share/keyrings/", "/etc/apt/")


def make_private_sources(system: BaseSystem, settings: Settings, root: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the files below `root` that hold the base's sources, preferences and keys; paths relative to `root`."""
    mirrors = settings.debian_mirrors
    for path, data in system.texts.items():
        if not path.startswith(_KEY_FOLDERS) or path.startswith("/etc/apt/apt.conf"):
            continue
        text = data
        if _SOURCES.fullmatch(path):
            replaced = _URL.sub(lambda url: _use_mirror(url[0], mirrors), data.decode("utf-8", "surrogateescape"))
            for folder in _KEY_FOLDERS:  # `Signed-By: /usr/share/keyrings/…` is a path of the base
                replaced = re.sub(rf"(?<=[\s=:,]){re.escape(folder)}", f"{root}{folder}", replaced)
            text = replaced.encode("utf-8", "surrogateescape")
        yield path.strip("/"), text


def list_archives(system: BaseSystem, settings: Settings) -> tuple[str, ...]:
    """Lists the archives' addresses in the order of the sources, each once, without a slash at the end."""
    mirrors = settings.debian_mirrors
    urls: dict[str, None] = {}
    for path in sorted(system.texts):
        if _SOURCES.fullmatch(path):
            lines = (line.strip() for line in system.text(path).splitlines())
            for line in lines:
                if not line.startswith("#"):
                    urls |= dict.fromkeys(_use_mirror(url, mirrors).rstrip("/") for url in _URL.findall(line))
    return tuple(urls)


def _use_mirror(url: str, mirrors: Mapping[str, str]) -> str:
    bare = url.rstrip("/")
    return f"{mirrors[bare]}/" if bare in mirrors else url
