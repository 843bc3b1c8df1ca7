"""Makes connection pools: TLS, certificates for single hosts, proxies, timeouts.

A pool neither retries nor follows redirects. A pool reads neither the environment nor netrc; the caller passes
credentials.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from training_imgtool.base.errors import LocalFileError, UsageError
from training_imgtool.base.http.addresses import Origin, is_loopback, parse_address
from training_imgtool.base.version import __version__

if TYPE_CHECKING:
    import urllib3

Pool: TypeAlias = "urllib3.PoolManager"
Response: TypeAlias = "urllib3.BaseHTTPResponse"

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class HostCertificates:
    """PEM files for one host's connections, in addition to the certificates that the machine trusts.

    Attributes:
        authorities: certificates of further certificate authorities.
        pairs: client certificates with their keys.
    """

    authorities: tuple[Path, ...] = ()
    pairs: tuple[tuple[Path, Path], ...] = ()


def find_certificates(folders: Iterable[Path], origin: Origin) -> HostCertificates:
    """Reads a host's first existing folder `certs.d/HOST[:PORT]/`, as Docker and Podman do.

    `*.crt` are certificates of further authorities that imgtool trusts for this host. `NAME.cert` and `NAME.key` are a
    client certificate and its key (docs.docker.com, "Verify repository client with certificates"). For port 443, the
    folder's name may include or omit the port. Raises LocalFileError if a folder cannot be read, or if a client
    certificate or its key is missing.
    """
    for folder in (parent / name for parent in folders for name in origin.names):
        try:
            files = sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise LocalFileError(f"{folder}: cannot be read: {error.strerror}") from error
        pairs = tuple((file, file.with_suffix(".key")) for file in files if file.suffix == ".cert")
        single = {file for file in files if file.suffix == ".cert"} ^ {
            file.with_suffix(".cert") for file in files if file.suffix == ".key"
        }
        if single:
            stem = min(single).with_suffix("")
            raise LocalFileError(
                f"{stem}: expected a client certificate NAME.cert and its key NAME.key, found only one of the two files"
            )
        return HostCertificates(tuple(file for file in files if file.suffix == ".crt"), pairs)
    return HostCertificates()


def make_pool(
    url: str,
    *,
    proxies: Mapping[str, str],
    ca_file: Path | None = None,
    certificates: HostCertificates | None = None,
    connections: int = 8,
    verify: bool = True,
) -> Pool:
    """Makes a pool for requests to `url`, and to other URLs with the same proxy and certificates.

    Args:
        url: `http://HOST[:PORT]` or `https://HOST[:PORT]`, with or without a path.
        proxies: `http`, `https` and `no`, as in `Settings.proxies`.
        ca_file: a PEM file of certificates to trust instead of the system's.
        certificates: the certificates for this host only.
        connections: connections per host; further requests wait until one is free.
        verify: whether to check the server's certificate.

    Raises:
        LocalFileError: a file of certificates cannot be read, or is not PEM.
        UsageError: a proxy's URL is wrong; the message never holds its password.
    """
    import urllib3

    from training_imgtool.base.http.connections import bound_waits

    options: dict[str, object] = {
        "num_pools": 16,
        "maxsize": connections,
        "block": True,
        "retries": urllib3.Retry(total=False, redirect=False),
        "timeout": urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        "headers": {"User-Agent": f"imgtool/{__version__}"},
        **_tls(url, ca_file, certificates or HostCertificates(), verify=verify),
    }
    proxy = proxy_for(url, proxies)
    if proxy is None:
        return bound_waits(urllib3.PoolManager(**options))  # type: ignore[arg-type]
    try:
        parsed = urllib3.util.parse_url(proxy if "://" in proxy else f"http://{proxy}")
        bare = parsed._replace(auth=None).url
        headers = urllib3.make_headers(proxy_basic_auth=parsed.auth) if parsed.auth else None
        return bound_waits(urllib3.ProxyManager(bare, proxy_headers=headers, **options))  # type: ignore[arg-type]
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        variable = f"{url.partition(':')[0].upper()}_PROXY"
        raise UsageError(
            f"{variable} is not the URL of a proxy that imgtool can use",
            hint=f"{variable} must be http://HOST:PORT; imgtool does not support SOCKS",
        ) from error


def timeouts(connect: float, read: float) -> urllib3.Timeout:
    """Makes the time limits of one request, in seconds."""
    import urllib3

    return urllib3.Timeout(connect=connect, read=read)


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """Returns the URL of the proxy for `url`, or None. Loopback addresses never get a proxy.

    In `proxies`, the entry `no` is a comma-separated list of `*`, host names (which cover their subdomains, with or
    without a leading dot), `HOST:PORT`, IP addresses and CIDR networks, as curl and Go read NO_PROXY.
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


def _excludes(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    address = parse_address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            pass
    name, colon, number = entry.rpartition(":")
    if colon and number.isdigit():
        if number != str(port):
            return False
        entry = name.strip("[]")
    entry = entry.removeprefix("*").lstrip(".")
    return host == entry or (address is None and host.endswith(f".{entry}"))


def _tls(url: str, ca_file: Path | None, certificates: HostCertificates, *, verify: bool) -> dict[str, object]:
    """Makes the TLS options. All https connections share one TLS context, as reading a CA bundle takes 20 ms."""
    if not verify:
        return {"cert_reqs": "CERT_NONE"}
    if not url.startswith("https:"):
        return {"cert_reqs": "CERT_REQUIRED", "ca_certs": str(ca_file) if ca_file else None}
    import ssl

    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.check_hostname = True
    # Python 3.13 demands extensions that many companies' CAs leave out; Docker and curl do not (cpython#138193).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
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
            context.load_cert_chain(file, key, password="")  # with None, OpenSSL would ask on the terminal
    except (OSError, ssl.SSLError) as error:
        message = f"{file}: not a PEM file of certificates ({error.strerror or error})"
        raise LocalFileError(message, hint=hint) from error
    return {"ssl_context": context}
