"""Google: application default credentials, and making an Artifact Registry repository. The adapter of google.*.

`google.auth.default` reads the process's environment and asks gcloud for a project. imgtool bounds its time and gives
it the machine's CA file and proxies.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from queue import Empty, SimpleQueue
from typing import Any

from training_imgtool.core.errors import (
    CredentialsError,
    ImgtoolError,
    InputError,
    RegistryRefusedError,
    TemporaryError,
)
from training_imgtool.core.progress import Done, Outcome, Progress, Step, silent
from training_imgtool.core.reference import Login, Repository
from training_imgtool.core.sanitize import mask_secrets
from training_imgtool.core.settings import Settings
from training_imgtool.core.threads import start_thread
from training_imgtool.http.pool import make_pool, proxy_for

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_NAME = "Google's application default credentials"
_LOGIN_HINT = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
_MOST_SECONDS = 15.0  # a metadata server that does not answer costs google.auth about ten
USER = "oauth2accesstoken"


class AccessToken:
    """Hands out Google access tokens as logins, renewed before they end. Safe for threads."""

    def __init__(self, credentials: Any, request: Callable[..., Any]) -> None:
        self._credentials = credentials
        self._request = request
        self._lock = threading.Lock()
        self._refusal: CredentialsError | None = None  # final for this run: roles ask side by side

    def __call__(self) -> Login:
        """Returns a login that Artifact Registry and its token server take; raises CredentialsError, TemporaryError."""
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
                    f"Google does not accept the credentials any more: {mask_secrets(str(error))}", hint=_LOGIN_HINT
                )
                raise self._refusal from None
            return Login(username=USER, password=str(self._credentials.token))

    @property
    def credentials(self) -> Any:
        """google.auth's own object, for Google's clients."""
        return self._credentials


def application_default(settings: Settings) -> tuple[AccessToken | None, str]:
    """Returns Google's credentials of this machine, or None, and what they are or why there are none.

    Raises:
        CredentialsError: GOOGLE_APPLICATION_CREDENTIALS names a file that cannot be used.
        TemporaryError: Google's token server, which some kinds of credentials need at once, does not answer.
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
            raise CredentialsError(message, hint=_LOGIN_HINT)
        return None, f"{_NAME} ({mask_secrets(str(found))})"
    return AccessToken(found, request), _NAME


def _unreachable(error: Exception) -> TemporaryError:
    return TemporaryError(
        f"Google's token server cannot be reached: {mask_secrets(str(error))}",
        hint="check this machine's network and proxy settings",
    )


class _Requests:
    """google.auth's transport over our own pools: their CA file, their proxies."""

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
        """Returns one request, as google.auth.transport.Request defines it."""
        from google.auth.transport.urllib3 import Request

        private = url.startswith("http://")
        pool = make_pool(url, proxies={} if private else self._settings.proxies, ca_file=self._settings.ca_file)
        request = Request(pool)  # type: ignore[no-untyped-call]
        return request(url, method, body, headers, timeout=timeout or 20, **options)


def refused_by_google(error: Exception, doing: str) -> ImgtoolError:
    """Translates google.api_core's and google.auth's errors to ours: the same exit codes as a registry's (A5)."""
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    said = f"{doing}: refused; Google says: {mask_secrets(str(getattr(error, 'message', None) or error))}"
    if isinstance(error, auth.TransportError | OSError):  # requests' errors are OSErrors
        return TemporaryError(
            f"{doing}: Google cannot be reached ({type(error).__name__})",
            hint="check this machine's network, proxy and IMGTOOL_CA_FILE",
        )
    if isinstance(error, auth.GoogleAuthError | api.Unauthenticated):
        return CredentialsError(f"{said} (credentials not accepted)", hint=_LOGIN_HINT)
    if isinstance(error, api.ServerError | api.TooManyRequests | api.RetryError):
        return TemporaryError(said, hint="run the command again later")
    hint = "check the project and the location" if isinstance(error, api.NotFound) else None
    if isinstance(error, api.Forbidden):
        hint = (
            "the account needs the role Artifact Registry Administrator (roles/artifactregistry.admin), and the "
            "API artifactregistry.googleapis.com must be enabled in the project"
        )
    return RegistryRefusedError(said, hint=hint)


def create_repository(
    repository: Repository,
    settings: Settings,
    progress: Progress = silent,
    *,
    endpoint: str | None = None,
    credentials: Any = None,
    seconds: float = 120.0,
) -> bool:
    """Makes the Artifact Registry repository that a reference names, and waits until it is there.

    Args:
        repository: `LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE`.
        settings: the machine's own.
        progress: receives a note of what it makes.
        endpoint: another API address (`http://HOST:PORT`), for tests.
        credentials: google.auth credentials instead of this machine's.
        seconds: how long to wait for the operation.

    Returns:
        Whether it was made now; False when it was there.

    Raises:
        InputError: the reference is not one of Artifact Registry's.
        CredentialsError, RegistryRefusedError, TemporaryError: Google does not make it.
    """
    place = parse_place(repository)
    doing = f"creating the repository {place.name}"
    if credentials is None:
        token, looked = application_default(settings)
        if token is None:
            raise CredentialsError(f"{doing}: no Google credentials; looked at: {looked}", hint=_LOGIN_HINT)
        credentials = token.credentials
    progress(Step(str(repository), doing))
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.cloud import artifactregistry_v1 as ar

    client = _client(ar, credentials, settings, endpoint)
    wanted = ar.Repository(format_=ar.Repository.Format.DOCKER, description="Training images, made by imgtool")
    try:
        operation = client.create_repository(
            parent=place.parent, repository=wanted, repository_id=place.repository, retry=None, timeout=60.0
        )
        operation.result(timeout=seconds)
        is_new = True
    except api.AlreadyExists:
        is_new = False
    except (api.GoogleAPIError, auth.GoogleAuthError, OSError) as error:
        if getattr(error, "code", None) != HTTPStatus.CONFLICT:
            raise refused_by_google(error, doing) from None
        is_new = False
    finally:
        client.transport.close()
    progress(Done(str(repository), Outcome.CREATED if is_new else Outcome.FOUND, f"the repository {place.name}"))
    return is_new


def _client(ar: Any, credentials: Any, settings: Settings, endpoint: str | None) -> Any:
    from google.api_core.client_options import ClientOptions

    options = ClientOptions(api_endpoint=endpoint) if endpoint else None
    client = ar.ArtifactRegistryClient(credentials=credentials, transport="rest", client_options=options)
    session = getattr(client.transport, "_session", None)
    if session is not None:  # requests reads the environment and netrc by itself; what counts are the settings
        session.trust_env = False
        session.verify = str(settings.ca_file) if settings.ca_file else True
        url = endpoint or "https://artifactregistry.googleapis.com"
        proxy = proxy_for(url, settings.proxies)
        session.proxies = {"https": proxy} if proxy else {}
    return client


@dataclass(frozen=True, slots=True)
class Place:
    """An Artifact Registry repository: where it is and what it is called."""

    project: str
    location: str
    repository: str

    @property
    def parent(self) -> str:
        """The API's name of what holds it."""
        return f"projects/{self.project}/locations/{self.location}"

    @property
    def name(self) -> str:
        """The API's name of it."""
        return f"{self.parent}/repositories/{self.repository}"


def parse_place(repository: Repository) -> Place:
    """Reads location, project and name from a reference; raises InputError if it is not Artifact Registry's.

    A domain-scoped project (`example.com:project`) is written `example.com/project` in image names.
    """
    location = repository.registry.removesuffix("-docker.pkg.dev")
    parts = repository.path.split("/")
    if "." in parts[0]:
        parts[:2] = [":".join(parts[:2])]
    if location == repository.registry or not location or len(parts) < 3:
        raise InputError(
            f"{repository} is not in Artifact Registry: expected LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE",
            hint="only Artifact Registry's repositories are created; elsewhere create it yourself",
        )
    return Place(parts[0], location, parts[1])
