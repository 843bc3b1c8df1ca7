"""Makes repositories through a stand-in for Artifact Registry's API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.oci.registry.support import Events, machine
from tests.servers.fake_artifact_registry import FakeArtifactRegistry
from tests.servers.registry_process import free_port
from training_imgtool.base.errors import (
    CredentialsError,
    ImgtoolError,
    InputError,
    RegistryRefusedError,
    TemporaryError,
)
from training_imgtool.base.progress import Done, Outcome, Step
from training_imgtool.base.reference import parse_repository
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.registry.artifact_registry import create_repository, parse_place

REPOSITORY = parse_repository("us-central1-docker.pkg.dev/my-project/training/mnist")
NAME = "projects/my-project/locations/us-central1/repositories/training"


@pytest.fixture
def api() -> Iterator[FakeArtifactRegistry]:
    with FakeArtifactRegistry() as running:
        yield running


def _create(address: str, tmp_path: Path) -> list[Any]:
    from google.auth.credentials import AnonymousCredentials

    events, nobody = Events(), AnonymousCredentials()  # type: ignore[no-untyped-call]
    create_repository(REPOSITORY, Machine.open(machine(tmp_path), events), api=address, credentials=nobody)
    return events.all


def test_a_repository_is_made_once_and_waited_for(api: FakeArtifactRegistry, tmp_path: Path) -> None:
    said = _create(api.endpoint, tmp_path)
    assert api.repositories[NAME]["format"] in {"DOCKER", 1}
    assert [asked.method for asked in api.asked] == ["POST", "GET", "GET"]
    assert said == [
        Step(str(REPOSITORY), f"creating the repository {NAME}"),
        Done(str(REPOSITORY), Outcome.CREATED, f"the repository {NAME}"),
    ]
    assert _create(api.endpoint, tmp_path)[-1] == Done(str(REPOSITORY), Outcome.FOUND, f"the repository {NAME}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("us-docker.pkg.dev/p/r/i", ("projects/p/locations/us", "r")),
        ("europe-west1-docker.pkg.dev/p/r/a/b/c", ("projects/p/locations/europe-west1", "r")),
        ("us-docker.pkg.dev/example.com/p/r/i", ("projects/example.com:p/locations/us", "r")),
    ],
)
def test_the_place_is_read_from_the_reference(text: str, place: tuple[str, str]) -> None:
    assert parse_place(parse_repository(text)) == place


@pytest.mark.parametrize(
    "text", ["us-docker.pkg.dev/p/r", "us-docker.pkg.dev/example.com/p/r", "gcr.io/p/r/i", "127.0.0.1:5000/p/r/i"]
)
def test_other_references_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"LOCATION-docker\.pkg\.dev/PROJECT/REPOSITORY/IMAGE"):
        parse_place(parse_repository(text))


@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [
        (403, "PERMISSION_DENIED", RegistryRefusedError),
        (404, "NOT_FOUND", RegistryRefusedError),
        (401, "UNAUTHENTICATED", CredentialsError),
        (429, "RESOURCE_EXHAUSTED", TemporaryError),
        (503, "UNAVAILABLE", TemporaryError),
    ],
)
def test_the_apis_refusals(
    api: FakeArtifactRegistry, tmp_path: Path, status: int, name: str, kind: type[ImgtoolError]
) -> None:
    api.error = (status, name, "the API's own words")
    with pytest.raises(kind, match=NAME):
        _create(api.endpoint, tmp_path)
    assert len(api.asked) == 1  # Google's client retries nothing on top


def test_an_operation_that_fails(api: FakeArtifactRegistry, tmp_path: Path) -> None:
    api.failure = (7, "no rights after all")
    with pytest.raises(RegistryRefusedError, match="no rights after all"):
        _create(api.endpoint, tmp_path)


def test_the_api_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(TemporaryError):
        _create(f"http://127.0.0.1:{free_port()}", tmp_path)
