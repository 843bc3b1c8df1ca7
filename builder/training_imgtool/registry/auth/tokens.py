"""Keeps bearer tokens in memory and, if it has a folder, in files that only their owner can read.

With a token on disk the next process needs one request instead of three. The name of a file is a hash; it holds one
token and its end, and counts only while its mode is 0600.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.json_cache import open_cache_file, write_cache_file
from training_imgtool.registry.auth.challenges import Access, Scopes, scope_texts

_LARGEST_FILE = 65536
_SHORTEST_KEPT = 30.0  # seconds that a token must still last to be worth a file
_MARGIN = 10.0  # seconds before its end when a token no longer counts


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, for what, and when it ends (seconds since 1970). `stored` when it came from a file."""

    text: str
    scopes: Scopes
    expires: float
    stored: bool = False

    def __repr__(self) -> str:
        return f"Token({', '.join(scope_texts(self.scopes))}, expires={self.expires:.0f})"


class TokenStore:
    """The tokens of one host. Safe for threads.

    Args:
        host: the registry.
        folder: where to keep tokens for other processes, or None.
        identity: what else a token depends on, such as the state of the login file; hashed.
        now: the wall clock, in seconds since 1970.
    """

    def __init__(self, host: str, folder: Path | None, *, identity: str, now: Callable[[], float]) -> None:
        self._host = host
        self._folder = folder
        self._identity = identity
        self._now = now
        self._tokens: list[Token] = []
        self._lock = threading.Lock()

    def find(self, scopes: Scopes) -> Token | None:
        """A token that lasts and covers `scopes`, or None."""
        with self._lock:
            held = [token for token in self._tokens if self._lasts(token)]
        covering = [token for token in held if scopes <= token.scopes]
        if covering:
            return covering[-1]
        for wider in dict.fromkeys((scopes, scopes | {Access(access.path, "push") for access in scopes})):
            token = self._read(wider)
            if token is not None and self._lasts(token):
                with self._lock:
                    self._tokens.append(token)
                return token
        return None

    def add(self, token: Token) -> None:
        """Adds a token."""
        with self._lock:
            self._tokens = [held for held in self._tokens if self._lasts(held)] + [token]
        if token.expires - self._now() >= _SHORTEST_KEPT:
            self._write(token)

    def drop(self, text: str) -> None:
        """Forgets a token that the registry refused."""
        with self._lock:
            dropped = [token for token in self._tokens if token.text == text]
            self._tokens = [token for token in self._tokens if token.text != text]
        for token in dropped:
            if self._folder is not None:
                with contextlib.suppress(OSError):
                    self._file(self._folder, token.scopes).unlink()

    def _lasts(self, token: Token) -> bool:
        return token.expires - _MARGIN > self._now()

    def _file(self, folder: Path, scopes: Scopes) -> Path:
        name = "\n".join((self._host, self._identity, *scope_texts(scopes)))
        return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:40]}.json"

    def _read(self, scopes: Scopes) -> Token | None:
        if self._folder is None:
            return None
        try:
            with open_cache_file(self._file(self._folder, scopes)) as file:
                state = os.fstat(file.fileno())
                if state.st_mode & 0o177 or state.st_uid != os.geteuid():
                    return None
                document = json.loads(file.read(_LARGEST_FILE))
            text, expires = document["token"], document["expires"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(text, str) or not isinstance(expires, int | float) or not text.isascii():
            return None
        return Token(text, scopes, float(expires), stored=True)

    def _write(self, token: Token) -> None:
        if self._folder is None:
            return
        with contextlib.suppress(OSError):  # without the file the next process needs two requests more
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            document = {"token": token.text, "expires": token.expires}
            write_cache_file(self._file(self._folder, token.scopes), json.dumps(document).encode(), mode=0o600)
