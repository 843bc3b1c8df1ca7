"""Google's application default credentials. The adapter of google.auth.

`google.auth.default` reads the process's environment and asks gcloud for a project. imgtool limits the time of that
call, and passes the machine's CA file and proxies.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from training_imgtool.base.errors import (
    CredentialsError,
    TemporaryError,
)
from training_imgtool.base.http.pool import make_pool
from training_imgtool.base.reference import Login
from training_imgtool.base.sanitize import mask_secrets
from training_imgtool.base.settings import Settings
from training_imgtool.base.threads import start_thread

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_NAME = "Google's application default credentials"
LOGIN_HINT = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
_MOST_SECONDS = 15.0  # google.auth waits about ten for a metadata server that does not answer
USER = "oauth2accesstoken"


class AccessToken:
    """Returns Google access tokens as logins, and renews them before they expire. Safe for threads."""

    def __init__(self, credentials: Any, request: Callable[..., Any]) -> None:
        self._credentials = credentials
        self._request = request
        self._lock = threading.Lock()
        self._refusal: CredentialsError | None = None  # final for this run, since roles ask in parallel

    def __call__(self) -> Login:
        """Returns a login for Artifact Registry and its token server; raises CredentialsError, TemporaryError."""
        from google.auth import exceptions

        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            try:
                if not self._credentials.valid:
                    self._credentials.refresh(self._request)
            except exceptions.TransportError as error:
                raise _unreachable(error) from None
            except exceptions.GoogleAuthError as error:
                self._refusal = CredentialsError(
                    f"Google does not accept the credentials any more: {mask_secrets(str(error))}", hint=LOGIN_HINT
                )
                raise self._refusal from None
            return Login(username=USER, password=str(self._credentials.token))

    @property
    def credentials(self) -> Any:
        """The credentials object of google.auth, which Google's clients take."""
        return self._credentials


def application_default(settings: Settings) -> tuple[AccessToken | None, str]:
    """Returns this machine's Google credentials or None, and their description or the reason why there are none.

    Raises:
        CredentialsError: GOOGLE_APPLICATION_CREDENTIALS names a file that cannot be used.
        TemporaryError: Google's token server does not answer, which some kinds of credentials need when they are
            loaded.
    """
    import google.auth
    from google.auth import exceptions
    from google.auth.credentials import with_scopes_if_required

    request: Any = _Requests(settings)
    answers: SimpleQueue[Any] = SimpleQueue()

    def find() -> None:
        try:
            found, _ = google.auth.default(request=request)  # given scopes, it would ask for some projects' names
            answers.put(with_scopes_if_required(found, [_SCOPE]))  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - also KeyError and TypeError for a file with missing fields
            answers.put(error)

    with warnings.catch_warnings():  # it warns of a user's credentials without a quota project
        warnings.simplefilter("ignore")
        start_thread("google-login", find)
        try:
            found = answers.get(timeout=_MOST_SECONDS)
        except Empty:
            return None, f"{_NAME} (no answer within {_MOST_SECONDS:.0f} seconds)"
    if isinstance(found, exceptions.TransportError):
        raise _unreachable(found)
    if isinstance(found, Exception):
        if named := settings.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            message = f"{named} (GOOGLE_APPLICATION_CREDENTIALS): not a file of Google credentials"
            raise CredentialsError(message, hint=LOGIN_HINT)
        return None, f"{_NAME} ({mask_secrets(str(found))})"
    return AccessToken(found, request), _NAME


def _unreachable(error: Exception) -> TemporaryError:
    return TemporaryError(
        f"Google's token server cannot be reached: {mask_secrets(str(error))}",
        hint="check this machine's network and proxy settings",
    )


class _Requests:
    """Sends google.auth's requests through imgtool's connection pools, with the machine's CA file and proxies."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Any:
        """Sends one request, as google.auth.transport.Request defines."""
        from google.auth.transport.urllib3 import Request

        private = url.startswith("http://")
        pool = make_pool(url, proxies={} if private else self._settings.proxies, ca_file=self._settings.ca_file)
        request = Request(pool)  # type: ignore[no-untyped-call]
        return request(url, method, body, headers, timeout=timeout or 20, **options)
