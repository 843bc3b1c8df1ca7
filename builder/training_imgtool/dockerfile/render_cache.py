"""Texts of imgtool's own templates from earlier runs, so that a run with nothing to do need not load Jinja.

Every check of the text runs all the same. The source's revision changes with every line of code and templates only copy
it into a label, so the cache stores texts with a mark in its place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from training_imgtool.core.json_cache import read_cached, write_cached

_FORM = b"normalised texts\n"
_MARK = "imgtool-revision-goes-here"

Answer = dict[str, Any]


class RenderCache:
    """Texts of templates as `dockerfile.render` wants them, in the cache. Losing them costs time, nothing else.

    Args:
        cache: the machine's cache.
        sources: the files that every answer depends on; read once.
    """

    def __init__(self, cache: Path, sources: Iterable[Path]) -> None:
        self._folder = cache / "rendered"
        self._sources = b"".join(hashlib.sha256(source.read_bytes()).digest() for source in sources)

    def answer(self, request: Mapping[str, Any], revision: str, make: Callable[[], Answer]) -> Answer:
        """Returns the answer to `request`: kept, else made and, when it holds texts, kept.

        Args:
            request: the request, in plain values.
            revision: a text in the values that templates copy and never look at; may be empty.
            make: asks.
        """
        text = json.dumps(request, sort_keys=True)
        if not revision or _MARK in text:
            return make()
        digest = hashlib.sha256(_FORM + text.replace(revision, _MARK).encode() + self._sources)
        path = self._folder / f"{digest.hexdigest()}.json"
        texts = read_cached(path)
        if texts is not None:
            return {"texts": [text.replace(_MARK, revision) for text in texts]}
        answer = make()
        if "texts" in answer:
            write_cached(path, [text.replace(revision, _MARK) for text in answer["texts"]])
        return answer
