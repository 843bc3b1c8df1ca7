"""Google: application default credentials, and making an Artifact Registry repository. The adapter of google.*.

The order is that of google.auth.default: GOOGLE_APPLICATION_CREDENTIALS, gcloud's file, the metadata server;
each is read from the settings, so a test's environment is not the process's.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
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
from training_imgtool.http.client import Client
from training_imgtool.http.pool import make_pool, proxy_for
from training_imgtool.http.retry import PassingError

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOGIN_HINT = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
_METADATA_SECONDS = 3.0
_METADATA_ADDRESS = "169.254.169.254"
_EARLY = 300.0  # seconds before its end when an access token is renewed (google.auth renews at 225)
USER = "oauth2accesstoken"


class AccessToken:
    """Hands out Google access tokens as logins, renewed before they end. Safe for threads."""

    def __init__(self, credentials: Any, request: Callable[..., Any], name: str) -> None:
        self._credentials = credentials
        self._request = request
        self._name = name
        self._lock = threading.Lock()
        self._refusal: CredentialsError | None = None  # final for this run: roles ask side by side

    def __call__(self) -> Login:
        """Returns a login that Artifact Registry and its token server take; raises CredentialsError, TemporaryError."""
        from google.auth import exceptions

        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            try:
                if not self._credentials.valid or self._ends_soon():
                    self._credentials.refresh(self._request)
            except exceptions.TransportError as error:
                raise TemporaryError(
                    f"Google's token server cannot be reached (credentials: {self._name}): {mask_secrets(str(error))}",
                    hint="check this machine's network and proxy settings",
                ) from None
            except exceptions.GoogleAuthError as error:
                self._refusal = CredentialsError(
                    f"Google does not accept the credentials of {self._name} any more: {mask_secrets(str(error))}",
                    hint=_LOGIN_HINT,
                )
                raise self._refusal from None
            return Login(username=USER, password=str(self._credentials.token))

    def _ends_soon(self) -> bool:
        from datetime import UTC, datetime

        expiry = getattr(self._credentials, "expiry", None)
        if not isinstance(expiry, datetime):
            return False
        return (expiry.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds() < _EARLY

    @property
    def credentials(self) -> Any:
        """google.auth's own object, for Google's clients."""
        return self._credentials


def application_default(settings: Settings) -> tuple[AccessToken | None, str]:
    """Returns Google's credentials of this machine, or None, and where they are from or were looked for.

    Raises:
        CredentialsError: a file is named or there, but cannot be used.
    """
    environ = settings.environ
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if named:
        return _from_file(Path(named), "GOOGLE_APPLICATION_CREDENTIALS", settings)
    usual = _gcloud_file(environ)
    if usual.is_file():
        return _from_file(usual, "gcloud", settings)
    looked = f"GOOGLE_APPLICATION_CREDENTIALS (not set), {usual} (not there)"
    if environ.get("NO_GCE_CHECK", "").lower() == "true":
        return None, f"{looked}, the metadata server (NO_GCE_CHECK)"
    request = _Requests(settings)
    if not _on_google(environ):
        return None, f"{looked}, the metadata server (does not answer)"
    from google.auth import compute_engine

    credentials = compute_engine.Credentials()  # type: ignore[no-untyped-call]
    return AccessToken(credentials, request, "the metadata server"), "the metadata server"


def _gcloud_file(environ: Mapping[str, str]) -> Path:
    folder = environ.get("CLOUDSDK_CONFIG")
    base = Path(folder) if folder else Path(environ.get("HOME") or "/nonexistent") / ".config/gcloud"
    return base / "application_default_credentials.json"


def _from_file(path: Path, origin: str, settings: Settings) -> tuple[AccessToken, str]:
    import google.auth
    from google.auth import exceptions

    name = f"{path} ({origin})"
    if not path.is_file():
        raise CredentialsError(f"{name}: there is no such file", hint=_LOGIN_HINT)
    try:
        with warnings.catch_warnings():  # it warns of files from strangers; this one is the user's own
            warnings.simplefilter("ignore")
            credentials = _read_identity_pool(path)
            if credentials is None:
                credentials, _ = google.auth.load_credentials_from_file(  # type: ignore[no-untyped-call]
                    str(path), scopes=[_SCOPE], request=_Requests(settings)
                )
    except exceptions.TransportError as error:  # a file of an identity elsewhere is tried at once
        raise TemporaryError(
            f"{name}: Google's token server cannot be reached: {mask_secrets(str(error))}",
            hint="check this machine's network and proxy settings",
        ) from None
    except (exceptions.GoogleAuthError, ValueError, LookupError, TypeError, AttributeError, OSError):
        raise CredentialsError(f"{name}: not a file of Google credentials", hint=_LOGIN_HINT) from None
    return AccessToken(credentials, _Requests(settings), name), name


def _read_identity_pool(path: Path) -> Any:
    """Reads the file of an identity that another service vouches for, as GitHub's login action leaves it; else None.

    google.auth would at once ask for a token and for the project, and by connections of its own.
    """
    info = json.loads(path.read_text(encoding="utf-8"))
    if info["type"] != "external_account" or not {"url", "file"} & info["credential_source"].keys():
        return None
    from google.auth import identity_pool

    return identity_pool.Credentials.from_info(info, scopes=[_SCOPE])  # type: ignore[no-untyped-call]


def _on_google(environ: Mapping[str, str]) -> bool:
    """Returns whether a metadata server answers, which may take three seconds twice; never by a proxy."""
    host = environ.get("GCE_METADATA_HOST") or environ.get("GCE_METADATA_IP") or _METADATA_ADDRESS
    client = Client(proxies={}, ca_file=None, connect_seconds=_METADATA_SECONDS, idle_seconds=_METADATA_SECONDS)
    try:
        answer = client.send("GET", f"http://{host}", headers={"Metadata-Flavor": "Google"})
    except (PassingError, ImgtoolError):
        return False
    finally:
        client.close()
    return answer.status == 200 and answer.headers.get("metadata-flavor") == "Google"


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
