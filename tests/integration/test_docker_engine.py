"""The Docker Engine back end against a real engine: what it builds, what it refuses, what it leaves behind."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import IO

import pytest

from tests.engines.support import (
    PLATFORM,
    Events,
    busybox_base,
    containers_running,
    free_port,
    refusing_server,
    registry_server,
    shared_engine,
    stage,
    wait_for,
)
from training_imgtool.core.errors import (
    BuildFailedError,
    CredentialsError,
    EngineUnavailableError,
    ImgtoolError,
    InputError,
    LocalFileError,
    RegistryRefusedError,
    TemporaryError,
)
from training_imgtool.core.progress import Done, LogLine, Outcome, Step, Transfer
from training_imgtool.core.reference import Digest, Login, parse_reference, parse_repository
from training_imgtool.engines.docker.engine import DOCKERFILE, STAGES, DockerEngine, list_stages, remove_image

pytestmark = pytest.mark.engine
LOADED = hashlib.sha256(b"loaded").hexdigest()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerEngine]:
    with shared_engine(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="module")
def base(engine: DockerEngine) -> str:
    return busybox_base(engine)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry_server(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.mark.long
def test_builds_a_stage_under_its_key(engine: DockerEngine, base: str) -> None:
    events = Events()
    build = stage(
        f"FROM {base}\nCOPY hello /srv/hello\nRUN cat /srv/hello && echo second\n", files={"hello": b"good day\n"}
    )
    assert engine.image_id(build.key) is None
    image = engine.build(build, events)
    assert image.startswith("sha256:")
    assert engine.image_id(build.key) == image
    assert [event.text for event in events.of(Step)] == [
        f"1/3 FROM {base}",
        "2/3 COPY hello /srv/hello",
        "3/3 RUN cat /srv/hello && echo second",
    ]
    assert [event.text for event in events.of(LogLine)] == ["good day", "second"]
    assert {event.what for event in events.of(Transfer)} == {"context"}
    remove_image(engine.api, f"{STAGES}:{build.key}")
    assert engine.image_id(build.key) is None


def test_its_own_files_are_no_part_of_what_copy_sees(engine: DockerEngine, base: str) -> None:
    events = Events()
    engine.build(stage(f"FROM {base}\nCOPY . /all/\nRUN ls -A /all\n", files={"code.py": b"1"}), events)
    assert [event.text for event in events.of(LogLine)] == ["code.py"]
    assert DOCKERFILE not in str(events)


def test_copies_from_another_stage(engine: DockerEngine, base: str) -> None:
    first = stage(f"FROM {base}\nRUN echo made > /made\n")
    made = engine.build(first, Events())
    events = Events()
    text = f"FROM {base}\nCOPY --from={made} /made /made\nRUN cat /made\n"
    engine.build(stage(text, copies_from=(first.key,)), events)
    assert events.of(LogLine) == [LogLine("worker", "made")]


@pytest.mark.long
def test_the_context_streams_with_flat_memory(engine: DockerEngine, base: str) -> None:
    """300 MB pass through a pipe in blocks of at most 1 MiB."""
    size = 300 << 20

    def write(stream: IO[bytes]) -> None:
        import tarfile

        entry = tarfile.TarInfo("big")
        entry.size = size
        stream.write(entry.tobuf())
        for _ in range(size >> 20):
            stream.write(bytes(1 << 20))
        stream.write(bytes(1024))

    events = Events()
    engine.build(stage(f"FROM {base}\nWORKDIR /x\n", context=write), events)
    sent = [event.done for event in events.of(Transfer)]
    assert sent[-1] > size
    assert max(after - before for before, after in pairwise(sent)) <= 1 << 20


def test_a_failing_step_names_itself_its_line_and_its_last_words(engine: DockerEngine, base: str) -> None:
    script = "for i in $(seq 1 30); do echo line $i; done; exit 7"
    with pytest.raises(BuildFailedError) as caught:
        engine.build(stage(f"FROM {base}\nRUN true\nRUN {script}\nRUN true\n"), Events())
    error = caught.value
    assert error.exit_code == 4
    assert error.message == f"worker: RUN {script} (line 12 of the rendered Dockerfile): ended with exit code 7"
    assert error.details == tuple(f"line {number}" for number in range(11, 31))
    assert containers_running(engine, "seq 1 30") == []


def test_a_killed_step_may_have_been_out_of_memory(engine: DockerEngine, base: str) -> None:
    with pytest.raises(BuildFailedError, match="was killed") as caught:
        engine.build(stage(f"FROM {base}\nRUN exit 137\n"), Events())
    assert "out of memory" in str(caught.value.hint)


def test_escapes_in_the_log_reach_no_error(engine: DockerEngine, base: str) -> None:
    with pytest.raises(BuildFailedError) as caught:
        engine.build(stage(f"FROM {base}\nRUN printf '\\033]0;title\\007\\033[31mred\\n' >&2; exit 3\n"), Events())
    assert caught.value.details == (r"\x1b]0;title\x07red",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COPY nothing /x", r"worker: COPY nothing /x \(line 11 .*nothing"),
        ("BOOM yes", r"unknown instruction: BOOM"),
        ("RUN --mount=type=secret,id=x true", r"BuildKit"),
    ],
)
def test_what_the_engine_cannot_build_is_wrong_input(engine: DockerEngine, base: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.build(stage(f"FROM {base}\n{text}\n"), Events())


def test_another_platform_is_wrong_input(engine: DockerEngine, base: str) -> None:
    with pytest.raises(InputError, match=r"is an image for linux/amd64, and .* for linux/arm64"):
        engine.build(stage(f"FROM {base}\nWORKDIR /x\n", platform="linux/arm64"), Events())


@pytest.mark.parametrize("parent", [f"sha256:{'0' * 64}", "imgtool/stage:gone", f"127.0.0.1:1/a@sha256:{'0' * 64}"])
def test_what_a_stage_needs_is_never_pulled_by_the_builder(engine: DockerEngine, parent: str) -> None:
    with pytest.raises(EngineUnavailableError, match="no longer in the Docker Engine"):
        engine.build(stage(f"FROM {parent}\nWORKDIR /x\n"), Events())


def test_a_context_that_cannot_be_written_ends_the_build(engine: DockerEngine, base: str) -> None:
    def missing(stream: IO[bytes]) -> None:
        Path("/nonexistent/file").read_bytes()

    def wrong(stream: IO[bytes]) -> None:
        raise InputError("changed while reading: a.py")

    with pytest.raises(LocalFileError, match="/nonexistent/file"):
        engine.build(stage(f"FROM {base}\nWORKDIR /x\n", context=missing), Events())
    with pytest.raises(InputError, match="changed while reading"):
        engine.build(stage(f"FROM {base}\nWORKDIR /x\n", context=wrong), Events())


@pytest.mark.long
def test_builds_run_side_by_side(engine: DockerEngine, base: str) -> None:
    """The containers of both steps are seen at once."""
    step = f"sleep 5.{time.time_ns() % 10_000_000}"
    builds = [stage(f"FROM {base}\nRUN {step}; echo {name}\n", subject=name) for name in ("master", "worker")]
    events = Events()
    with ThreadPoolExecutor(2) as pool:
        images = pool.map(lambda build: engine.build(build, events), builds)
        assert wait_for(lambda: len(containers_running(engine, step)) == 2, 60)
    assert len(set(images)) == 2
    assert {event.subject: event.text for event in events.of(LogLine)} == {
        "master": "master",
        "worker": "worker",
    }


@pytest.mark.parametrize("interrupt", ["close", "exception"])
def test_a_cancelled_build_leaves_no_container(tmp_path: Path, base: str, interrupt: str) -> None:
    marker = f"sleep 30{time.time_ns() % 10_000_000}"

    class StopError(Exception):
        pass

    with shared_engine(tmp_path) as engine, shared_engine(tmp_path) as other:

        def progress(event: object) -> None:
            if interrupt == "exception" and isinstance(event, LogLine):
                raise StopError

        caught: list[BaseException] = []

        def build() -> None:
            try:
                engine.build(stage(f"FROM {base}\nRUN echo begun; {marker}\n"), progress)
            except (StopError, ImgtoolError) as error:
                caught.append(error)

        thread = threading.Thread(target=build)
        thread.start()
        if interrupt == "close":
            assert wait_for(lambda: containers_running(other, marker), 20)
            engine.close()
        else:
            assert wait_for(lambda: caught, 20)
        assert wait_for(lambda: not containers_running(other, marker), 20)
        thread.join(20)
        assert not thread.is_alive()
        assert isinstance(caught[0], StopError if interrupt == "exception" else EngineUnavailableError)


def push(engine: DockerEngine, base: str, name: str, login: Login | None = None) -> tuple[str | None, Events]:
    tag = parse_repository(name).tag("worker-1")
    events = Events()
    engine.tag(base, tag)
    try:
        return engine.push(tag, login, events, subject="worker"), events
    finally:
        remove_image(engine.api, str(tag))


@pytest.mark.registry
def test_pushes_and_names_the_digest_that_the_registry_has(engine: DockerEngine, base: str, registry: str) -> None:
    digest, events = push(engine, base, f"{registry}/team/image")
    with urllib.request.urlopen(
        urllib.request.Request(
            f"http://{registry}/v2/team/image/manifests/{digest}",
            headers={"Accept": "application/vnd.docker.distribution.manifest.v2+json"},
        )
    ) as answer:
        body = answer.read()
    assert f"sha256:{hashlib.sha256(body).hexdigest()}" == digest
    layers = len(json.loads(body)["layers"])
    assert events[-1] == LogLine("worker", f"layers: {layers} sent")
    sizes = [event for event in events.of(Transfer) if event.subject == "worker"]
    assert sizes
    assert all(event.done <= (event.total or 0) for event in sizes)
    again, events = push(engine, base, f"{registry}/team/image")
    assert again == digest
    assert events[-1] == LogLine("worker", f"layers: {layers} already there")


@pytest.mark.registry
def test_pulls_a_base_by_digest_once(engine: DockerEngine, base: str, registry: str) -> None:
    own = engine.build(stage(f"FROM {base}\nRUN head -c 3000000 /dev/urandom > /random\n"), Events())
    text, _ = push(engine, own, f"{registry}/library/base")
    assert text is not None
    with engine.api.ask("removing") as client:
        for reference in client.inspect_image(own)["RepoTags"] + client.inspect_image(own)["RepoDigests"]:
            client.remove_image(reference, noprune=True)
    found = parse_repository(f"{registry}/library/base").digest(text)
    assert isinstance(found, Digest)
    events = Events()
    engine.pull_base(found, PLATFORM, None, events)
    assert events[0] == Step("base library/base", f"pulling {found}")
    assert isinstance(end := events[-1], Done)  # or it would seem to go on until the command ends
    assert (end.subject, end.outcome, end.text) == ("base library/base", Outcome.FETCHED, found.digest)
    transfers = events.of(Transfer)
    assert transfers
    assert transfers[-1].done == transfers[-1].total
    engine.build(stage(f"FROM {found}\nRUN test -s /random\n"), Events())
    events = Events()
    engine.pull_base(found, PLATFORM, None, events)
    assert events == []
    with pytest.raises(InputError, match="is an image for linux/amd64, and the spec's platform is linux/s390x"):
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
def test_a_refused_push_is_an_error(
    engine: DockerEngine,
    base: str,
    answer: tuple[int, str, dict[str, str]],
    login: Login | None,
    expected: type[ImgtoolError],
) -> None:
    status, code, headers = answer
    body = json.dumps({"errors": [{"code": code, "message": f"{code.lower()}: as the server says"}]})
    with refusing_server(status, body, headers) as (address, seen), pytest.raises(ImgtoolError) as caught:
        push(engine, base, f"{address}/team/image", login)
    assert type(caught.value) is expected
    assert address in caught.value.message
    assert "canary-secret" not in f"{caught.value}{caught.value.hint}"
    assert seen.count("GET /v2/ HTTP/1.1") <= 2  # no is no: the push was not tried again


@pytest.mark.long
def test_a_registry_that_is_not_there_is_tried_five_times(engine: DockerEngine, base: str) -> None:
    events = Events()
    tag = parse_repository(f"127.0.0.1:{free_port()}/team/image").tag("x")
    engine.tag(base, tag)
    try:
        with pytest.raises(TemporaryError, match=r"connection refused.*\(5 tries in"):
            engine.push(tag, None, events)
    finally:
        remove_image(engine.api, str(tag))
    assert [event.text[:15] for event in events.of(LogLine)] == [f"try {number} of 5 fail" for number in range(1, 5)]


def test_a_host_without_an_address_is_tried_once(engine: DockerEngine, base: str) -> None:
    with pytest.raises((TemporaryError, RegistryRefusedError)) as caught:
        push(engine, base, "registry.invalid/team/image")
    assert "tries" not in caught.value.message


def test_a_tag_that_the_engine_lost_is_said(engine: DockerEngine) -> None:
    tag = parse_repository(f"127.0.0.1:{free_port()}/team/never").tag("x")
    with pytest.raises(EngineUnavailableError, match="no longer has the image"):
        engine.push(tag, None, Events())


def test_loads_an_image(engine: DockerEngine, base: str) -> None:
    with engine.api.ask("saving") as client:
        saved = list(client.get_image(base))
    assert engine.load(saved, LOADED) == base
    assert engine.image_id(LOADED) == base


def test_refuses_to_load_what_is_no_image(engine: DockerEngine) -> None:
    with pytest.raises(EngineUnavailableError, match="loading an image"):
        engine.load([b"not a tar"], LOADED)


PROGRAM = """
import os, sys
from contextlib import closing
from pathlib import Path
from training_imgtool.cli.progress import open_progress
from training_imgtool.engines.docker.client import connect
from training_imgtool.core.threads import run_all
from training_imgtool.core.signals import Cancelled, handle_signals
from tests.engines.support import settings, stage

base, marker, host = sys.argv[1:]
try:
    with (
        handle_signals(),
        open_progress("plain", sys.stderr, os.environ) as progress,
        closing(connect(settings(Path("/nonexistent"), **({"DOCKER_HOST": host} if host else {})))) as engine,
    ):
        builds = {name: stage(f"FROM {base}\\nRUN {marker}{name}\\n", subject=name) for name in ("1", "2")}
        run_all({name: lambda build=build: engine.build(build, progress) for name, build in builds.items()})
except Cancelled as stopped:
    sys.exit(stopped.exit_code)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
def test_a_signal_stops_what_the_engine_does(
    engine: DockerEngine, base: str, number: signal.Signals, code: int
) -> None:
    marker = f"sleep 4{time.time_ns() % 10_000_000}"
    command = [sys.executable, "-c", PROGRAM, base, marker, os.environ.get("DOCKER_HOST", "")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert wait_for(lambda: len(containers_running(engine, marker)) == 2, 30)
        assert process.stderr is not None
        steps = {next(line for line in process.stderr if "2/2 RUN" in line)[:3] for _ in range(2)}
        process.send_signal(number)
        _, shown = process.communicate(timeout=20)
        assert process.returncode == code
        assert wait_for(lambda: not containers_running(engine, marker), 20)
    assert "Traceback" not in shown
    assert steps == {"[1]", "[2]"}


def test_stages_are_listed_and_taken_away(engine: DockerEngine, base: str) -> None:
    """But for those that a container runs on."""
    began = time.time() - 60
    idle, busy = (stage(f"FROM {base}\nRUN echo {name}\n") for name in ("idle", "busy"))
    for one in (idle, busy):
        engine.build(one, Events())
    names = [f"{STAGES}:{one.key}" for one in (idle, busy)]
    found = list_stages(engine.api)
    assert all(found[name] >= began for name in names)
    with engine.api.ask("making a container") as client:
        container = client.create_container(names[1], ["true"])["Id"]
    try:
        assert [remove_image(engine.api, name) for name in names] == [True, False]
        assert [engine.image_id(one.key) is None for one in (idle, busy)] == [True, False]
    finally:
        with engine.api.ask("removing the container") as client:
            client.remove_container(container)
    assert remove_image(engine.api, names[1])
    assert not set(names) & set(list_stages(engine.api))
    assert remove_image(engine.api, names[1])  # another run was faster
