"""What a failed connection means, in our words: shared by the ways to make one."""

from __future__ import annotations

import errno

from training_imgtool.core.errors import ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.core.sanitize import join_lines
from training_imgtool.registry.http.addresses import Origin, redacted
from training_imgtool.registry.http.retry import PassingError


def no_host(origin: Origin) -> ImgtoolError:
    """The host's name is unknown."""
    return TemporaryError(
        f"the host {origin.host} cannot be found", hint="check the registry's name and this machine's DNS"
    )


def nothing_answers(origin: Origin, error: BaseException, *, known: bool) -> Exception:
    """No connection opens. `known`: the host has answered before, so it is coming back."""
    if known:
        return PassingError("refuses connections now")
    return TemporaryError(
        f"nothing answers at {redacted(origin.url)} ({cause(error)})",
        hint="check the registry's name and port, and that it runs",
    )


def not_http(origin: Origin, found: str) -> PassingError:
    """Something else answers there, or once something went wrong on the way; `found` goes on after the host's name."""
    final = RegistryRefusedError(
        f"{redacted(origin.url)} is no registry: it {found}", hint="check the registry's name and port"
    )
    return PassingError(found, final=final, tries=2)


def cause(error: BaseException) -> str:
    """The operating system's words for what lies behind an error."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return errno.errorcode.get(seen.errno or 0, "") and seen.strerror
        inner = seen.args[-1] if seen.args and isinstance(seen.args[-1], BaseException) else None
        seen = inner or seen.__cause__ or seen.__context__
    return "it ended early"


def tls_error(origin: Origin, text: str) -> RegistryRefusedError:
    """TLS failed; `text` is OpenSSL's."""
    where = redacted(origin.url)
    if "WRONG_VERSION_NUMBER" in text or "UNKNOWN_PROTOCOL" in text or "RECORD_LAYER_FAILURE" in text:
        return RegistryRefusedError(
            f"{where} does not speak TLS",
            hint=f"if it is meant to be plain HTTP: IMGTOOL_INSECURE_REGISTRIES={origin.host}:{origin.port}",
        )
    if "expired" in text or "not yet valid" in text:
        return RegistryRefusedError(
            f"{where}: the certificate is not valid now ({join_lines(text, 160)})",
            hint="check this machine's clock too",
        )
    if "match" in text and ("Hostname" in text or "hostname" in text or "IP address" in text):
        return RegistryRefusedError(f"{where}: the certificate is for another host ({join_lines(text, 200)})")
    return RegistryRefusedError(
        f"{where}: the certificate is not trusted ({join_lines(text, 160)})",
        hint="if it comes from your own CA, name the CA's PEM file in IMGTOOL_CA_FILE",
    )
