"""Checks the addresses to which a server redirects imgtool, and makes URLs fit for messages. No network.

imgtool sends a registry only the credentials for this registry. A registry may redirect imgtool to storage on another
host, but not from https to http, not from a public name to a private address, and never to a link-local address or a
metadata service. imgtool sends no credentials to the other host (go-containerregistry's redirect and SSRF rules).
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import parse_qsl, urljoin, urlsplit, urlunsplit

from training_imgtool.base.errors import RegistryRefusedError

REDIRECTS = 5
_SHOWN_QUERY_KEYS = frozenset({"digest", "mount", "from", "origin", "scope", "service", "n", "last", "account"})
DEFAULT_PORTS = {"http": 80, "https": 443}
_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain"})


@dataclass(frozen=True, slots=True)
class Origin:
    """A scheme, a host and a port. imgtool sends credentials only to the origin that they are for."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """`SCHEME://HOST:PORT`."""
        return f"{self.scheme}://{self.names[0]}"

    @property
    def names(self) -> tuple[str, ...]:
        """`HOST:PORT`, and also `HOST` if the port is the default of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (f"{host}:{self.port}", *([host] if self.port == DEFAULT_PORTS[self.scheme] else []))


def origin_of(url: str) -> Origin:
    """Reads the origin of an absolute http or https URL; raises ValueError for anything else."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an http or https URL")
    return Origin(parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme])


def split_host(host: str) -> tuple[str, str]:
    """Splits `HOST[:PORT]` as (host without brackets, port or '')."""
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name, port.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port


def is_loopback(host: str) -> bool:
    """Returns whether `host` (no port; IPv6 with or without brackets) is this machine."""
    name = host.strip("[]").lower()
    if name in _LOOPBACK_NAMES or name.endswith(".localhost"):
        return True
    address = parse_address(name)
    return address is not None and address.is_loopback


def speaks_http(host: str, insecure: tuple[str, ...]) -> bool:
    """Returns whether imgtool speaks plain HTTP to `HOST[:PORT]`: loopback, and hosts that the user lists."""
    return is_loopback(split_host(host)[0]) or host in insecure or split_host(host)[0] in insecure


def next_url(current: str, location: str, registry: Origin, what: str) -> str:
    """Returns the absolute URL of a Location header.

    Args:
        current: the URL that answered.
        location: the header, absolute or relative.
        registry: the origin of the registry that the first request went to.
        what: begins the message, such as `upload to HOST`.

    Raises:
        RegistryRefusedError: imgtool does not follow that address.
    """
    try:
        target = urljoin(current, location)
        origin = origin_of(target)
        parts = urlsplit(target)
        secret = parts.username is not None or parts.password is not None
    except ValueError:
        raise RegistryRefusedError(
            f"{what}: the registry redirects to an address that is not an http or https URL"
        ) from None
    shown = redact(target)
    if secret:
        raise RegistryRefusedError(f"{what}: the registry redirects to an address with credentials in it ({shown})")
    if origin.scheme == "http" and urlsplit(current).scheme == "https":
        raise RegistryRefusedError(
            f"{what}: the registry redirects from https to http ({shown})",
            hint="let the registry's proxy send X-Forwarded-Proto, or set the external URL in the registry's settings",
        )
    if _is_metadata(origin.host):
        raise RegistryRefusedError(f"{what}: the registry redirects to a link-local address ({shown}): refused")
    if not_public(origin.host) and not private_registry(registry.host):
        raise RegistryRefusedError(f"{what}: the registry redirects to a private address ({shown}): refused")
    return urlunsplit(parts._replace(fragment=""))


def private_registry(host: str) -> bool:
    """Returns whether a registry's host is private; only such a registry may redirect to private addresses."""
    address = parse_address(host)
    if address is not None:
        return not address.is_global and not address.is_link_local
    return "." not in host or is_loopback(host)


def not_public(host: str) -> bool:
    """Returns whether a host is an IP address that the internet cannot reach, or a name of this machine."""
    address = parse_address(host)
    if address is None:
        return is_loopback(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return not (mapped or address).is_global


def _is_metadata(host: str) -> bool:
    """Returns whether a host is a link-local address, such as a cloud's metadata service, or such a service's name."""
    address = parse_address(host)
    if address is None:
        return host in {"metadata", "metadata.google.internal"}
    return (getattr(address, "ipv4_mapped", None) or address).is_link_local or str(address) == "fd00:ec2::254"


def redact(url: str) -> str:
    """Makes a URL fit for a message: without user and password, and without values of query keys that may be secret."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    query = "&".join(
        f"{key}={value if key in _SHOWN_QUERY_KEYS else '…'}" for key, value in parse_qsl(parts.query)[:10]
    )
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{host}{port}", parts.path, query, ""))[:500]


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parses a host that is an address, in any notation of resolvers (`127.1`, `0x7f000001`); None for other hosts."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host)) if host[:1].isdigit() else None
    except (OSError, UnicodeError):
        return None
