"""The Docker Engine's store against a real engine: what it pulls, loads and gives up again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator

import pytest

from tests.make.engines.support import (
    Events,
    build,
    busybox_base,
    refusing_server,
    registry_server,
)
from training_imgtool.base.errors import (
    CredentialsError,
    EngineUnavailableError,
    ImgtoolError,
    InputError,
    RegistryRefusedError,
    TemporaryError,
)
from training_imgtool.base.progress import Done, Outcome, Step, Transfer
from training_imgtool.base.reference import Digest, Login, parse_reference, parse_repository
from training_imgtool.make.engines.docker.engine import STAGES, DockerEngine, list_stages, remove_image

pytestmark = pytest.mark.engine
PLATFORM = "linux/amd64"
LOADED = hashlib.sha256(b"loaded").hexdigest()
NONE = f"sha256:{'1' * 64}"


@pytest.fixture(scope="module")
def base(engine: DockerEngine) -> str:
    return busybox_base(engine)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry_server(tmp_path_factory.mktemp("registry")) as address:
        yield address


def push(engine: DockerEngine, image: str, name: str) -> str:
    """Has the engine push an image; returns its digest."""
    tag = parse_repository(name).tag("worker-1")
    engine.tag(image, tag)
    try:
        with engine.api.ask("pushing an image for a test") as client:
            events = list(client.push(name, tag.name, stream=True, decode=True))
        return next(str(event["aux"]["Digest"]) for event in events if "aux" in event)
    finally:
        remove_image(engine.api, str(tag))


@pytest.mark.registry
def test_pulls_a_base_by_digest_once(engine: DockerEngine, base: str, registry: str) -> None:
    own = build(engine, f"FROM {base}\nRUN head -c 3000000 /dev/urandom > /random\n")
    digest = push(engine, own, f"{registry}/library/base")
    with engine.api.ask("removing") as client:
        for reference in client.inspect_image(own)["RepoTags"] + client.inspect_image(own)["RepoDigests"]:
            client.remove_image(reference, noprune=True)
    found = parse_repository(f"{registry}/library/base").digest(digest)
    assert isinstance(found, Digest)
    events = Events()
    engine.pull_base(found, PLATFORM, None, events)
    assert events[0] == Step("base library/base", f"pulling {found}")
    assert isinstance(end := events[-1], Done)  # or it would seem to go on until the command ends
    assert (end.subject, end.outcome, end.text) == ("base library/base", Outcome.FETCHED, found.digest)
    transfers = events.of(Transfer)
    assert transfers
    assert transfers[-1].done == transfers[-1].total
    events = Events()
    engine.pull_base(found, PLATFORM, None, events)
    assert events == []
    with pytest.raises(InputError, match="is an image for linux/amd64, but the spec's platform is linux/s390x"):
        engine.pull_base(found, "linux/s390x", None, events)


@pytest.mark.registry
def test_an_unknown_base_is_refused(engine: DockerEngine, registry: str) -> None:
    base = parse_reference(f"{registry}/library/none@sha256:{'1' * 64}")
    assert isinstance(base, Digest)
    with pytest.raises(RegistryRefusedError, match=r"base library/none: pull: .*manifest unknown"):
        engine.pull_base(base, PLATFORM, None, Events())


BASIC = {"WWW-Authenticate": 'Basic realm="here"', "Docker-Distribution-Api-Version": "registry/2.0"}


@pytest.mark.parametrize(
    ("answer", "login", "expected"),
    [
        ((401, "UNAUTHORIZED", BASIC), None, CredentialsError),
        ((401, "UNAUTHORIZED", BASIC), Login(username="jo", password="canary-secret"), CredentialsError),
        ((403, "DENIED", {}), Login(username="jo", password="canary-secret"), RegistryRefusedError),
        ((404, "NAME_UNKNOWN", {}), None, RegistryRefusedError),
    ],
)
def test_a_refused_pull_is_an_error(
    engine: DockerEngine, answer: tuple[int, str, dict[str, str]], login: Login | None, expected: type[ImgtoolError]
) -> None:
    status, code, headers = answer
    body = json.dumps({"errors": [{"code": code, "message": f"{code.lower()}: as the server says"}]})
    with refusing_server(status, body, headers) as (address, seen), pytest.raises(ImgtoolError) as caught:
        engine.pull_base(parse_repository(f"{address}/team/image").digest(NONE), PLATFORM, login, Events())
    assert type(caught.value) is expected
    assert address in caught.value.message
    assert "canary-secret" not in f"{caught.value}{caught.value.hint}"
    assert seen.count("GET /v2/ HTTP/1.1") <= 2  # no is no: the pull was not tried again


def test_a_host_without_an_address_is_tried_once(engine: DockerEngine) -> None:
    with pytest.raises((TemporaryError, RegistryRefusedError)) as caught:
        engine.pull_base(parse_repository("registry.invalid/team/image").digest(NONE), PLATFORM, None, Events())
    assert "tries" not in caught.value.message


def test_loads_an_image(engine: DockerEngine, base: str) -> None:
    with engine.api.ask("saving") as client:
        saved = list(client.get_image(base))
    assert engine.load(saved, LOADED) == base
    assert engine.image_id(LOADED) == base


def test_layers_that_the_engine_has_may_be_left_out(engine: DockerEngine, base: str) -> None:
    key = hashlib.sha256(str(time.time_ns()).encode()).hexdigest()
    build(engine, f"FROM {base}\nRUN echo {key} > /made\n", key=key)
    with engine.api.ask("looking") as client:
        layers = client.inspect_image(f"{STAGES}:{key}")["RootFS"]["Layers"]
    assert engine.count_held([*layers, "sha256:another"]) == len(layers)
    assert engine.count_held(["sha256:another", *layers]) == 0
    remove_image(engine.api, f"{STAGES}:{key}")


def test_refuses_to_load_what_is_no_image(engine: DockerEngine) -> None:
    with pytest.raises(EngineUnavailableError, match="loading an image"):
        engine.load([b"not a tar"], LOADED)


def test_stages_are_listed_and_taken_away(engine: DockerEngine, base: str) -> None:
    """But for those that a container runs on."""
    began = time.time() - 60
    keys = [hashlib.sha256(f"{name}{began}".encode()).hexdigest() for name in ("idle", "busy")]
    for key in keys:
        build(engine, f"FROM {base}\nRUN echo {key}\n", key=key)
    names = [f"{STAGES}:{key}" for key in keys]
    found = list_stages(engine.api)
    assert all(found[name] >= began for name in names)
    with engine.api.ask("making a container") as client:
        container = client.create_container(names[1], ["true"])["Id"]
    try:
        assert [remove_image(engine.api, name) for name in names] == [True, False]
        assert [engine.image_id(key) is None for key in keys] == [True, False]
    finally:
        with engine.api.ask("removing the container") as client:
            client.remove_container(container)
    assert remove_image(engine.api, names[1])
    assert not set(names) & set(list_stages(engine.api))
    assert remove_image(engine.api, names[1])  # another run was faster
