"""Reads and writes pages of the simple repository API: JSON (PEP 691) or HTML (PEP 503), with files and hashes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".egg", ".tar.xz")
_INTERACTIVE = frozenset({"form", "input", "script"})


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file that a project's page lists.

    Attributes:
        sha256: the hash; None if the page does not state it.
        size: the size in bytes; None if the page does not state it.
        yanked: why the publishers withdrew the file (PEP 592), possibly empty; None if they did not.
        has_metadata: whether URL.metadata is the wheel's METADATA (PEP 658).
    """

    file: str
    url: str
    sha256: str | None
    size: int | None
    yanked: str | None = None
    has_metadata: bool = False


class PageError(ValueError):
    """The page is not in the API's JSON or HTML format."""


def parse_page(data: bytes, content_type: str, url: str) -> tuple[IndexedFile, ...]:
    """Parses the files of a page that came from `url`; raises PageError if it is not a page of the API."""
    try:
        if "json" in content_type:
            return _parse_json(data, url)
        reader = _Anchors(url)
        reader.feed(data.decode())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, AssertionError) as error:  # of HTMLParser
        raise PageError(f"not a page of the simple repository API: {error}") from error
    if reader.is_interactive and not any(file.file.endswith(_ARCHIVES) for file in reader.files):
        raise PageError("not a page of the simple repository API: a web page without files, such as a login page")
    return tuple(reader.files)


def make_page_url(index: str, name: str) -> str:
    """Returns the URL of a project's page on an index (with the name normalised, PEP 503)."""
    return f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', name).lower()}/"


def write_index(pages: Mapping[str, tuple[IndexedFile, ...]], folder: Path) -> str:
    """Writes an index (PEP 503) with the files of packages into `folder`, and returns its URL."""
    for name, rows in pages.items():
        anchors = (
            f'<a href="{escape(row.url)}{f"#sha256={row.sha256}" if row.sha256 else ""}"'
            f"{' data-core-metadata' if row.has_metadata else ''}>{escape(row.file)}</a>\n"
            for row in rows
        )
        (folder / name).mkdir(parents=True)
        (folder / name / "index.html").write_text(f"<!DOCTYPE html>\n{''.join(anchors)}", encoding="utf-8")
    return folder.as_uri()


def _parse_json(data: bytes, base: str) -> tuple[IndexedFile, ...]:
    rows = json.loads(data)["files"]
    return tuple(
        IndexedFile(
            str(row["filename"]),
            urljoin(base, row["url"]),
            row.get("hashes", {}).get("sha256"),
            row.get("size"),
            None if (yanked := row.get("yanked", False)) is False else "" if yanked is True else str(yanked),
            bool(row.get("core-metadata") or row.get("dist-info-metadata")),
        )
        for row in rows
    )


class _Anchors(HTMLParser):
    """Collects `<a href="…#sha256=…">`, and notices inputs and buttons, which index pages do not contain."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self.files: list[IndexedFile] = []
        self.is_interactive = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.is_interactive = self.is_interactive or tag in _INTERACTIVE
        values = dict(attrs)
        href = values.get("href")
        if href is None:
            return
        if tag == "base":
            self._base = urljoin(self._base, href)
        elif tag == "a":
            url, fragment = urldefrag(urljoin(self._base, href))
            digest = re.search(r"sha256=([0-9a-f]{64})", fragment)
            file = unquote(urlsplit(url).path.rpartition("/")[2])
            yanked = (values["data-yanked"] or "") if "data-yanked" in values else None
            has_metadata = bool({"data-core-metadata", "data-dist-info-metadata"} & values.keys())
            self.files.append(IndexedFile(file, url, digest[1] if digest else None, None, yanked, has_metadata))
