"""Hides secrets in everything that imgtool prints: messages, notes, logs, documents about failures.

Whoever reads a login, or refuses a value as a secret, remembers the secret here. `HidingStream` stands in for stderr,
so that no part of imgtool needs to know who prints what. Other texts that look like credentials are hidden by their
form.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, TextIO
from urllib.parse import quote, unquote

from training_imgtool.base.secret_text import mask_shapes

_SHORTEST = 5  # characters; replacing shorter texts would make messages unreadable
_HIDDEN = "…"
_IN_URL = r"(:/{1,3}[^/\s:@]*:)(?![$<{%*])[^/\s@]+(?=@)"
_BEFORE_HOST = r"(?<![\w/:.-])([\w.+-]+:)(?![$<{%*])[^/\s:@]+(?=@(?!(?:sha|md)\w*:|[a-z0-9]+:[0-9a-fA-F]{8})[\w.\[])"
_known: set[str] = set()


def remember_secret(*texts: str) -> None:
    """Hides each of the texts, and its forms in JSON, in URLs and in base64, from now on."""
    for text in texts:
        if len(text) >= _SHORTEST:
            encoded = base64.b64encode(text.encode("utf-8", "replace")).decode()
            forms = {text, json.dumps(text)[1:-1], repr(text)[1:-1], quote(text, safe=""), unquote(text)}
            _known.update(form for form in (*forms, encoded) if len(form) >= _SHORTEST)


def remember_authorization(value: str) -> None:
    """Hides the credentials in the header Authorization."""
    scheme, _, credentials = value.partition(" ")
    remember_secret(credentials)
    if scheme.lower() == "basic":
        try:
            remember_secret(base64.b64decode(credentials).decode().partition(":")[2])
        except ValueError:
            return


def hide_secrets(text: str) -> str:
    """Returns the text with `…` in place of remembered secrets, passwords in URLs, and known kinds of credentials."""
    for secret in sorted((one for one in tuple(_known) if one in text), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    if "@" in text:
        text = re.sub(_BEFORE_HOST, rf"\1{_HIDDEN}", re.sub(_IN_URL, rf"\1{_HIDDEN}", text))
    return mask_shapes(text, _HIDDEN)


class HidingStream:
    """A stream that hides secrets in what is written to `stream`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes the text without secrets; returns its length."""
        self._stream.write(hide_secrets(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Leaves everything else to the stream."""
        return getattr(self._stream, name)
