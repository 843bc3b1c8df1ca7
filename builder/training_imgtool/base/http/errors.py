"""Translates urllib3's exceptions into imgtool's errors."""

from __future__ import annotations

import contextlib
import errno
import http.client
import re
import socket
from collections.abc import Iterator

from urllib3 import exceptions

from training_imgtool.base.errors import CredentialsError, ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.base.http.addresses import Origin, redact
from training_imgtool.base.http.retry import PassingError
from training_imgtool.base.sanitize import sanitize_line


@contextlib.contextmanager
def translate_errors(origin: Origin, *, answered: bool, proxy: str | None) -> Iterator[None]:
    """Raises imgtool's errors instead of urllib3's.

    Args:
        origin: the server.
        answered: whether the server has answered before, so that a failure is likely temporary.
        proxy: HOST:PORT of the proxy, if there is one.

    Raises:
        PassingError: the connection broke, or took too long.
        RegistryRefusedError: TLS failed, or the proxy refuses.
        CredentialsError: the proxy wants a login, or the server a client certificate.
        TemporaryError: the host's name is unknown, or nothing listens there.
    """
    try:
        yield
    except (exceptions.NameResolutionError, exceptions.LocationParseError) as error:  # a label of over 63 letters
        raise _no_host(origin, error.__cause__) from error
    except exceptions.ProxyError as error:
        raise _proxy_error(error, proxy or "") from error
    except exceptions.SSLError as error:
        raise _tls_error(origin, str(error)) from error
    except exceptions.NewConnectionError as error:  # before ConnectTimeoutError, of which urllib3 makes it a subclass
        raise _nothing_answers(origin, error, answered=answered) from error
    except exceptions.ConnectTimeoutError as error:
        raise PassingError("does not answer: connecting took too long") from error
    except exceptions.TimeoutError as error:
        raise PassingError("sent nothing for too long") from error
    except (exceptions.HTTPError, OSError) as error:
        reason = error.args[-1] if error.args else None
        if _is_not_http(error) or _is_not_http(reason):
            raise _not_http(origin) from error
        if _wants_client_certificate(_cause(error)):  # in TLS 1.3 this alert comes with the first answer
            raise _tls_error(origin, _cause(error)) from error
        raise PassingError(f"broke the connection ({_cause(error)})") from error


def proxy_refusal(proxy: str, status: int) -> ImgtoolError:
    """Makes the error for a proxy that refuses to forward a request."""
    if status == 407:
        return CredentialsError(
            f"the proxy {proxy} wants a login (HTTP 407)",
            hint="put the login into HTTP_PROXY and HTTPS_PROXY, as http://USER:PASSWORD@HOST:PORT",
        )
    return RegistryRefusedError(
        f"the proxy {proxy} refuses the connection (HTTP {status})",
        hint="check HTTP_PROXY and HTTPS_PROXY; list hosts that need no proxy in NO_PROXY",
    )


def _proxy_error(error: exceptions.ProxyError, proxy: str) -> Exception:
    refusal = re.search(r"Tunnel connection failed: (\d{3})", str(error.original_error))
    if refusal and refusal[1].startswith("4") and refusal[1] not in {"408", "429"}:
        return proxy_refusal(proxy, int(refusal[1]))
    return PassingError(f"cannot be reached through the proxy ({refusal[0] if refusal else _cause(error)})")


def _no_host(origin: Origin, cause: BaseException | None) -> Exception:
    final = TemporaryError(
        f"the host {origin.host} cannot be found", hint="check the host's name and this machine's DNS"
    )
    if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN:  # the name server failed, not the name
        return PassingError("cannot be found at the moment (the name server fails)", final=final, tries=4)
    return final


def _nothing_answers(origin: Origin, error: BaseException, *, answered: bool) -> Exception:
    if answered:
        return PassingError("refuses connections now")
    return TemporaryError(
        f"nothing answers at {redact(origin.url)} ({_cause(error)})",
        hint="check the host's name and port, and that the server runs",
    )


def _not_http(origin: Origin) -> PassingError:
    problem = "answered something that is not HTTP/1"
    final = RegistryRefusedError(
        f"{redact(origin.url)} is not a web server: it {problem}", hint="check the host's name and port"
    )
    return PassingError(problem, final=final, tries=2)


def _is_not_http(error: object) -> bool:
    if isinstance(error, exceptions.InvalidHeader):
        return True
    return isinstance(error, http.client.HTTPException) and not isinstance(
        error, http.client.RemoteDisconnected | http.client.IncompleteRead
    )


def _cause(error: BaseException) -> str:
    """Finds the operating system's message in the chain of an error's causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return errno.errorcode.get(seen.errno or 0, "") and seen.strerror
        inner = seen.args[-1] if seen.args and isinstance(seen.args[-1], BaseException) else None
        seen = inner or seen.__cause__ or seen.__context__
    return "it ended early"


def _wants_client_certificate(text: str) -> bool:
    """Returns whether the server's TLS alert means that the client certificate is missing or rejected.

    Servers in Go send the alert "bad certificate" for a missing one; OpenSSL with TLS 1.2 sends "handshake failure".
    """
    return any(words in text for words in ("certificate required", "alert bad certificate", "alert handshake failure"))


def _tls_error(origin: Origin, text: str) -> Exception:
    """Returns the error for a failure of TLS; `text` is OpenSSL's message."""
    where = redact(origin.url)
    if "EOF occurred" in text or "UNEXPECTED_EOF" in text:
        return PassingError("broke the connection (it ended early)")
    if _wants_client_certificate(text):
        return CredentialsError(
            f"{where} asks for a client certificate, and imgtool has none that the server accepts",
            hint=f"put client.cert and client.key into /etc/docker/certs.d/{origin.names[-1]}",
        )
    if "WRONG_VERSION_NUMBER" in text or "UNKNOWN_PROTOCOL" in text or "RECORD_LAYER_FAILURE" in text:
        return RegistryRefusedError(
            f"{where} does not speak TLS",
            hint=f"if the registry uses plain HTTP, set IMGTOOL_INSECURE_REGISTRIES={origin.host}:{origin.port}",
        )
    if "expired" in text or "not yet valid" in text:
        return RegistryRefusedError(
            f"{where}: the certificate is not valid now ({sanitize_line(text, limit=160)})",
            hint="check this machine's clock, too",
        )
    if "match" in text and ("Hostname" in text or "hostname" in text or "IP address" in text):
        return RegistryRefusedError(f"{where}: the certificate is for another host ({sanitize_line(text, limit=200)})")
    return RegistryRefusedError(
        f"{where}: the certificate is not trusted ({sanitize_line(text, limit=160)})",
        hint="if it comes from your own CA, name the CA's PEM file in IMGTOOL_CA_FILE, or make it "
        f"/etc/docker/certs.d/{origin.names[-1]}/ca.crt",
    )
