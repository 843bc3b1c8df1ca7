"""TLS for connections without a proxy; loaded only where it is spoken, since that takes 3 ms."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

from training_imgtool.core.errors import LocalFileError
from training_imgtool.registry.http.addresses import Origin
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.transport_errors import cause, tls_error


class Tls:
    """TLS to one origin. One context for all connections, since reading a bundle of authorities takes 20 ms.

    Args:
        origin: whom to trust when the certificate says so.
        ca_file: a PEM file to trust instead of the system's.

    Raises LocalFileError when that is none.
    """

    def __init__(self, origin: Origin, ca_file: Path | None) -> None:
        self._origin = origin
        try:
            self._context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        except (OSError, ssl.SSLError) as error:
            raise LocalFileError(
                f"{ca_file}: not a PEM file of certificates ({error.strerror or error})",
                hint="check IMGTOOL_CA_FILE, SSL_CERT_FILE and REQUESTS_CA_BUNDLE",
            ) from error
        self._context.set_alpn_protocols(["http/1.1"])

    def wrap(self, connection: socket.socket, name: Any) -> socket.socket:
        """The connection with TLS begun on it, for the host `name`.

        Raises RegistryRefusedError when the server is not trusted, PassingError when it hangs up, and other OSErrors.
        """
        try:
            return self._context.wrap_socket(connection, server_hostname=name)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise PassingError(f"broke the connection ({cause(error)})") from error
        except ssl.SSLError as error:
            raise tls_error(self._origin, str(error)) from error
