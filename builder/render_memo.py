"""What our own templates gave before, kept between runs.

Loading Jinja and compiling takes 20 of the 155 ms of a run with nothing to do. Every check of the text is made all
the same.

The source's revision changes with every line of code and is only ever copied into a label, so texts are kept with a
mark in its place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from builder.errors import LocalFileError
from builder.files import write_atomic

_MARK = "imgtool-revision-goes-here"

Answer = dict[str, Any]


class RenderMemo:
    """Answers of `builder.render_child` in a folder of the cache. Losing it costs time, nothing else."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "rendered"

    def answer(
        self, request: Mapping[str, Any], revision: str, sources: Iterable[Path], make: Callable[[], Answer]
    ) -> Answer:
        """The answer to `request`: kept, else made and, when it holds texts, kept.

        Args:
            request: what is asked, plain values.
            revision: a text in the values that templates copy and never look at; may be empty.
            sources: the files that the answer depends on.
            make: asks.
        """
        text = json.dumps(request, sort_keys=True)
        if not revision or _MARK in text:
            return make()
        digest = hashlib.sha256(text.replace(revision, _MARK).encode())
        for source in sources:
            digest.update(hashlib.sha256(source.read_bytes()).digest())
        path = self._folder / f"{digest.hexdigest()}.json"
        kept = _read(path)
        if kept is not None:
            return {"texts": [one.replace(_MARK, revision) for one in kept]}
        answer = make()
        if "texts" in answer:
            _write(path, [one.replace(revision, _MARK) for one in answer["texts"]])
        return answer


def _read(path: Path) -> list[str] | None:
    """The texts, if the file is whole: it begins with the hash of the rest."""
    try:
        check, _, body = path.read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != check:
            return None
        texts: list[str] = json.loads(body)
    except (OSError, ValueError):
        return None
    return texts


def _write(path: Path, texts: list[str]) -> None:
    body = json.dumps(texts).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    except (OSError, LocalFileError):
        return
