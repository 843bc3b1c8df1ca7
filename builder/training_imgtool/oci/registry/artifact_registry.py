"""Creates repositories in Artifact Registry. This module is the only adapter of google.cloud."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from training_imgtool.base.errors import (
    CredentialsError,
    ImgtoolError,
    InputError,
    RegistryRefusedError,
    TemporaryError,
)
from training_imgtool.base.http.pool import proxy_for
from training_imgtool.base.progress import Done, Outcome, Step
from training_imgtool.base.reference import Repository
from training_imgtool.base.sanitize import mask_secrets
from training_imgtool.base.settings import Settings
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.registry.auth.google import LOGIN_HINT, application_default

_API = "https://artifactregistry.googleapis.com"
_SECONDS = 120.0  # limit for the operation


def create_repository(repository: Repository, machine: Machine, *, api: str = _API, credentials: Any = None) -> None:
    """Creates the Artifact Registry repository of a reference, unless it exists, and waits until it is ready.

    Args:
        repository: `LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE`.
        machine: has the settings and the progress.
        api: the API's address.
        credentials: google.auth credentials instead of this machine's.

    Raises:
        InputError: the reference is not one of Artifact Registry's.
        CredentialsError, RegistryRefusedError, TemporaryError: Google does not create it.
    """
    parent, name = parse_place(repository)
    place = f"{parent}/repositories/{name}"
    doing = f"creating the repository {place}"
    client = _client(credentials or _own_credentials(machine.settings, doing), machine.settings, api)
    machine.progress(Step(str(repository), doing))
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import artifactregistry_v1 as ar

    wanted = ar.Repository(format_=ar.Repository.Format.DOCKER, description="Training images, made by imgtool")
    outcome = Outcome.CREATED
    try:
        client.create_repository(parent=parent, repository=wanted, repository_id=name, retry=None, timeout=60.0).result(
            timeout=_SECONDS
        )
    except (exceptions.GoogleAPIError, GoogleAuthError, OSError) as error:
        if getattr(error, "code", None) != HTTPStatus.CONFLICT:
            raise _refused(error, doing) from None
        outcome = Outcome.FOUND
    finally:
        client.transport.close()
    machine.progress(Done(str(repository), outcome, f"the repository {place}"))


def parse_place(repository: Repository) -> tuple[str, str]:
    """Returns the API's name for the location, and the repository's name; raises InputError for another registry.

    Image names write a domain-scoped project (`example.com:project`) as `example.com/project`.
    """
    location = repository.registry.removesuffix("-docker.pkg.dev")
    parts = repository.path.split("/")
    if "." in parts[0]:
        parts[:2] = [":".join(parts[:2])]
    if location == repository.registry or not location or len(parts) < 3:
        raise InputError(
            f"{repository} is not in Artifact Registry: expected LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE",
            hint="imgtool creates only Artifact Registry repositories; create other repositories yourself",
        )
    return f"projects/{parts[0]}/locations/{location}", parts[1]


def _own_credentials(settings: Settings, doing: str) -> Any:
    token, looked = application_default(settings)
    if token is None:
        raise CredentialsError(f"{doing}: no Google credentials; imgtool looked at: {looked}", hint=LOGIN_HINT)
    return token.credentials


def _client(credentials: Any, settings: Settings, api: str) -> Any:
    from google.api_core.client_options import ClientOptions
    from google.cloud.artifactregistry_v1 import ArtifactRegistryClient

    options = ClientOptions(api_endpoint=api)
    client: Any = ArtifactRegistryClient(credentials=credentials, transport="rest", client_options=options)
    session = client.transport._session  # noqa: SLF001 the one way to keep requests from the environment and netrc
    session.trust_env = False
    session.verify = str(settings.ca_file) if settings.ca_file else True
    proxy = proxy_for(api, settings.proxies)
    session.proxies = {"https": proxy} if proxy else {}
    return client


def _refused(error: Exception, doing: str) -> ImgtoolError:
    """Translates errors of google.api_core and google.auth to the errors that `failures` makes for the same causes."""
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    said = f"{doing}: refused; Google says: {mask_secrets(str(getattr(error, 'message', None) or error))}"
    if isinstance(error, auth.TransportError | OSError):  # requests' errors are OSErrors
        message = f"{doing}: Google cannot be reached ({type(error).__name__})"
        return TemporaryError(message, hint="check this machine's network, proxy and IMGTOOL_CA_FILE")
    if isinstance(error, auth.GoogleAuthError | api.Unauthenticated):
        return CredentialsError(f"{said} (credentials not accepted)", hint=LOGIN_HINT)
    if isinstance(error, api.ServerError | api.TooManyRequests | api.RetryError):
        return TemporaryError(said, hint="run the command again later")
    hint = "check the project and the location" if isinstance(error, api.NotFound) else None
    if isinstance(error, api.Forbidden):
        hint = (
            "the account needs the role Artifact Registry Administrator (roles/artifactregistry.admin), and the "
            "API artifactregistry.googleapis.com must be enabled in the project"
        )
    return RegistryRefusedError(said, hint=hint)
