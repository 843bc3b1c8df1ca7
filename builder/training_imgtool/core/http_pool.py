"""The one place that makes an HTTP connection pool: TLS, proxies, timeouts, and no retries of its own.

The registry's client and the package index's both retry in their own way, so the pool does neither that
nor redirects. It reads no environment and no netrc: credentials come from the callers.
"""

from __future__ import annotations

import functools
import http.client
import io
import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from training_imgtool.core.errors import LocalFileError, UsageError
from training_imgtool.core.version import __version__

if TYPE_CHECKING:
    import urllib3

Pool: TypeAlias = "urllib3.PoolManager"
Response: TypeAlias = "urllib3.BaseHTTPResponse"

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
HEAD_SECONDS = 20.0  # for a response's head, from its first byte to its last
_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain"})


@dataclass(frozen=True, slots=True)
class HostCertificates:
    """What one host's connections use beside what the machine trusts; all are PEM files.

    Attributes:
        authorities: further certificates of authorities.
        pairs: client certificates with their keys.
    """

    authorities: tuple[Path, ...] = ()
    pairs: tuple[tuple[Path, Path], ...] = ()


def make_pool(
    url: str,
    *,
    proxies: Mapping[str, str],
    ca_file: Path | None = None,
    certificates: HostCertificates | None = None,
    connections: int = 8,
    connect_seconds: float = CONNECT_SECONDS,
    read_seconds: float = READ_SECONDS,
    verify: bool = True,
) -> Pool:
    """A pool for requests to `url` (a proxy is chosen per host, so one pool serves one host and those like it).

    Args:
        url: `http://HOST[:PORT]` or `https://HOST[:PORT]`, with or without a path.
        proxies: `http`, `https` and `no`, as in `Settings.proxies`.
        ca_file: a PEM file to trust instead of the system's.
        certificates: of the host alone.
        connections: connections kept per host; further ones block until one is free.
        connect_seconds: limit for a connection to open, TLS included.
        read_seconds: limit between two reads. Once a response has begun, its head has HEAD_SECONDS in all.
        verify: whether a server's certificate is checked.

    Raises:
        LocalFileError: a file of certificates is not a PEM file that can be read.
        UsageError: a proxy's URL is wrong; the message never holds its password.
    """
    import urllib3

    options: dict[str, object] = {
        "num_pools": 16,
        "maxsize": connections,
        "block": True,
        "retries": urllib3.Retry(total=False, redirect=False),
        "timeout": urllib3.Timeout(connect=connect_seconds, read=read_seconds),
        "headers": {"User-Agent": f"imgtool/{__version__}"},
        **_tls(url, ca_file, certificates or HostCertificates(), verify=verify),
    }
    proxy = proxy_for(url, proxies)
    if proxy is None:
        return _with_limited_heads(urllib3.PoolManager(**options))  # type: ignore[arg-type]
    try:
        parsed = urllib3.util.parse_url(proxy if "://" in proxy else f"http://{proxy}")
        bare = parsed._replace(auth=None).url
        headers = urllib3.make_headers(proxy_basic_auth=parsed.auth) if parsed.auth else None
        return _with_limited_heads(urllib3.ProxyManager(bare, proxy_headers=headers, **options))  # type: ignore[arg-type]
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        variable = f"{url.partition(':')[0].upper()}_PROXY"
        raise UsageError(
            f"{variable} is not the URL of a proxy that imgtool can use",
            hint=f"{variable} takes http://HOST:PORT; imgtool does not speak SOCKS",
        ) from error


class _TimedReader(io.RawIOBase):
    """A socket's bytes until a time limit. The idle limit alone never ends a server that drips a byte now and then."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._ends = 0.0
        self.limited = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        if self.limited and self._ends and time.monotonic() > self._ends:
            raise TimeoutError(f"no complete head within {HEAD_SECONDS:.0f} s")
        count = self._raw.readinto(buffer)
        self._ends = self._ends or time.monotonic() + HEAD_SECONDS
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response whose head must arrive within HEAD_SECONDS of its first byte."""

    def begin(self) -> None:
        reader = _TimedReader(self.fp.detach())
        self.fp = io.BufferedReader(reader)
        super().begin()
        reader.limited = False


@functools.cache
def _pool_classes() -> dict[str, type]:
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.connection import HTTPConnection, HTTPSConnection

    plain = type("Connection", (HTTPConnection,), {"response_class": _Response})
    secure = type("SecureConnection", (HTTPSConnection,), {"response_class": _Response})
    return {
        "http": type("ConnectionPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecureConnectionPool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }


def _with_limited_heads(manager: Pool) -> Pool:
    manager.pool_classes_by_scheme = _pool_classes()
    return manager


def timeouts(connect: float, read: float) -> urllib3.Timeout:
    """The limits of one request, in seconds."""
    import urllib3

    return urllib3.Timeout(connect=connect, read=read)


def transport_errors() -> tuple[type[Exception], ...]:
    """What a request raises when a connection does not open, breaks or says nonsense."""
    from urllib3.exceptions import HTTPError

    return (HTTPError, ConnectionError, TimeoutError)


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """The proxy's URL for `url`, or None. Loopback is never proxied.

    The entry `no` is a list by commas: `*`, host names (which cover their subdomains, a leading dot or
    not), `HOST:PORT`, IP addresses and CIDR networks, as curl and Go read NO_PROXY.
    """
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    proxy = proxies.get(parts.scheme)
    if not proxy or is_loopback(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for entry in (part.strip().lower() for part in proxies.get("no", "").split(",")):
        if entry and _excludes(entry, host, port):
            return None
    return proxy


def is_loopback(host: str) -> bool:
    """Whether `host` (no port; IPv6 with or without brackets) is this machine."""
    name = host.strip("[]").lower()
    if name in _LOOPBACK_NAMES or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and address.is_loopback


def _excludes(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            pass
    name, colon, number = entry.rpartition(":")
    if colon and number.isdigit():
        if int(number) != port:
            return False
        entry = name.strip("[]")
    entry = entry.removeprefix("*").lstrip(".")
    return host == entry or (address is None and host.endswith(f".{entry}"))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _tls(url: str, ca_file: Path | None, certificates: HostCertificates, *, verify: bool) -> dict[str, object]:
    """The pool's TLS options: for https one context for all connections, since reading a CA bundle takes 20 ms."""
    if not verify:
        return {"cert_reqs": "CERT_NONE"}
    if not url.startswith("https:"):
        return {"cert_reqs": "CERT_REQUIRED", "ca_certs": str(ca_file) if ca_file else None}
    import ssl

    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.check_hostname = True
    hint, file = "check IMGTOOL_CA_FILE, SSL_CERT_FILE and REQUESTS_CA_BUNDLE", ca_file
    try:
        if ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile=str(ca_file))
        hint = "remove it, or put a PEM file without a password there"
        for file in certificates.authorities:
            context.load_verify_locations(cafile=str(file))
        for file, key in certificates.pairs:
            context.load_cert_chain(file, key, password="")  # with None, OpenSSL asks on the terminal
    except (OSError, ssl.SSLError) as error:
        message = f"{file}: not a PEM file of certificates ({error.strerror or error})"
        raise LocalFileError(message, hint=hint) from error
    return {"ssl_context": context}
