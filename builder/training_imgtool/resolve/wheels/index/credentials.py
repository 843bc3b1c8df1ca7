"""Finds the user name and password for an index's host in the places that uv and pip read.

The places, in this order: the index's own URL, UV_INDEX_<NAME>_USERNAME and _PASSWORD, netrc, and with
UV_KEYRING_PROVIDER=subprocess the `keyring` program. imgtool sends credentials only to the index's own origin.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

_KEYRING_SECONDS = 10


def find_authorization(url: str, index_urls: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    """Returns the Authorization header for `url`, or None if there are no credentials for its origin."""
    target = urlsplit(url)
    own = [parts for parts in map(urlsplit, (url, *index_urls)) if _read_origin(parts) == _read_origin(target)]
    for parts in own:
        if parts.password is not None:
            return _encode_basic(unquote(parts.username or ""), unquote(parts.password))
    login = _find_named(target, environ) or _read_netrc(target.hostname or "", environ)
    if login is None and environ.get("UV_KEYRING_PROVIDER") == "subprocess":
        user = next((unquote(parts.username) for parts in own if parts.username), None)
        login = _ask_keyring(target, user, environ) if user else None
    return _encode_basic(*login) if login else None


def without_login(url: str) -> str:
    """Returns `url` without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url


def add_login(url: str, environ: Mapping[str, str]) -> str:
    """Inserts the login of the variables UV_INDEX_<NAME>_… into `url`, for a program that runs without them."""
    parts = urlsplit(url)
    login = _find_named(parts, environ) if parts.password is None else None
    if login is None:
        return url
    user, password = (quote(part, safe="") for part in login)
    return parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


def _read_origin(parts: SplitResult) -> tuple[str, str, int | None]:
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme, (parts.hostname or "").lower(), port or {"http": 80, "https": 443}.get(parts.scheme)


def _encode_basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _find_named(target: SplitResult, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Finds the login of an index that UV_INDEX or UV_DEFAULT_INDEX names as NAME=URL."""
    for entry in f"{environ.get('UV_INDEX', '')} {environ.get('UV_DEFAULT_INDEX', '')}".split():
        name, equals, url = entry.partition("=")
        if not equals or "/" in name or _read_origin(urlsplit(url)) != _read_origin(target):
            continue
        prefix = f"UV_INDEX_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"
        password = environ.get(f"{prefix}_PASSWORD")
        if password is not None:
            return environ.get(f"{prefix}_USERNAME", ""), password
    return None


def _read_netrc(host: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    from netrc import NetrcParseError, netrc

    home = environ.get("HOME")
    path = environ.get("NETRC") or (str(Path(home) / ".netrc") if home else None)
    if path is None:
        return None
    try:
        login = netrc(path).hosts.get(host)  # without netrc's `default`, which would go to every host
    except (OSError, NetrcParseError, UnicodeDecodeError):
        return None
    return (login[0], login[2] or "") if login else None


def _ask_keyring(target: SplitResult, user: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    for service in (f"{target.scheme}://{target.netloc.rpartition('@')[2]}", target.hostname or ""):
        try:
            done = subprocess.run(
                ["keyring", "get", service, user],
                env=dict(environ),
                capture_output=True,
                text=True,
                timeout=_KEYRING_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode == 0 and done.stdout.strip():
            return user, done.stdout.strip("\n")
    return None
