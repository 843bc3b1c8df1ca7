"""Finds the archives in a base's sources, for apt and for downloads. A mirror replaces an archive's address."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from imgtool_debian_layers.base_system import BaseSystem

_URL = re.compile(r"(?:mirror\+)?https?://[^\s\]]+")
_SOURCES = re.compile(r"/etc/apt/(?:sources\.list|sources\.list\.d/.+\.(?:list|sources))")
_KEY_FOLDERS = ("/usr/share/keyrings/", "/etc/apt/")


def make_private_sources(system: BaseSystem, mirrors: Mapping[str, str], root: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the files of the base's sources, preferences and keys, each as a path relative to `root` and a content."""
    for path, data in system.texts.items():
        if not path.startswith(_KEY_FOLDERS) or path.startswith("/etc/apt/apt.conf"):
            continue
        text = data
        if _SOURCES.fullmatch(path):
            replaced = _URL.sub(lambda url: _use_mirror(url[0], mirrors), system.text(path))
            for folder in _KEY_FOLDERS:  # `Signed-By: /usr/share/keyrings/…` is a path of the base
                replaced = re.sub(rf"(?<=[\s=:,]){re.escape(folder)}", f"{root}{folder}", replaced)
            text = replaced.encode("utf-8", "surrogateescape")
        yield path.strip("/"), text


def list_archives(system: BaseSystem, mirrors: Mapping[str, str]) -> tuple[str, ...]:
    """Lists the archives' addresses without duplicates, in the order of the sources, without trailing slashes.

    Args:
        system: the base.
        mirrors: addresses to use instead of those that the base names.
    """
    urls: dict[str, None] = {}
    for path in filter(_SOURCES.fullmatch, sorted(system.texts)):
        for line in system.text(path).splitlines():
            if not line.strip().startswith("#"):
                urls |= dict.fromkeys(_use_mirror(url, mirrors).rstrip("/") for url in _URL.findall(line))
    return tuple(urls)


def _use_mirror(url: str, mirrors: Mapping[str, str]) -> str:
    bare = url.rstrip("/")
    return f"{mirrors[bare]}/" if bare in mirrors else url
