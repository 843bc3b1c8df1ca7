"""The engine's event streams, as recorded: what they mean, whatever is in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.engines.support import Events, stage
from training_imgtool.core.errors import (
    BuildFailedError,
    CredentialsError,
    EngineUnavailableError,
    ImgtoolError,
    InputError,
    RegistryRefusedError,
    TemporaryError,
)
from training_imgtool.core.progress import LogLine, Step, Transfer
from training_imgtool.core.reference import Login
from training_imgtool.engines import NoClassicBuilderError
from training_imgtool.engines.docker.client import engine_error
from training_imgtool.engines.docker.events import BuildLog, TransferLog, error_message
from training_imgtool.engines.docker.registry_errors import registry_error, worth_retrying

IMAGE = f"sha256:{'a' * 64}"
HEX = "0123456789ab"


def built(events: Iterable[dict[str, Any]], *, answers: bool = True) -> tuple[BuildLog, Events]:
    shown = Events()
    log = BuildLog(stage("FROM base\nCOPY a /a\nRUN make\n"), shown, lambda: answers)
    for event in events:
        log.take(event)
    return log, shown


def stream(*texts: str) -> list[dict[str, Any]]:
    return [{"stream": text} for text in texts]


def error(message: str, code: int | None = None) -> dict[str, Any]:
    return {"errorDetail": {"message": message} | ({"code": code} if code is not None else {}), "error": message}


def test_a_build_from_its_first_step_to_its_image() -> None:
    log, shown = built(
        [
            *stream(
                "Step 1/3 : FROM base", "\n", f" ---> {HEX}\n", "Step 2/3 : COPY a /a", "\n", " ---> Using cache\n"
            ),
            *stream(f" ---> {HEX}\n", "Step 3/3 : RUN make\n", f" ---> Running in {HEX}\n"),
            *stream("half ", "a line\nand ", "two\n", "\x1b[91mwarning\n\x1b[0m"),
            *stream(f"\x1b[0mRemoving intermediate container {HEX}\n", " ---> arrows of its own\n", "no end"),
            {"aux": {"ID": IMAGE}},
            *stream(f"\nSuccessfully built {HEX}\n", "Successfully tagged imgtool/stage:1\n"),
        ]
    )
    assert log.finished() == IMAGE
    assert [event.text for event in shown.of(Step)] == ["1/3 FROM base", "2/3 COPY a /a", "3/3 RUN make"]
    lines = [event.text for event in shown.of(LogLine)]
    assert lines == ["half a line", "and two", "\x1b[91mwarning", " ---> arrows of its own", "no end"]


def test_a_step_cannot_pretend_to_be_another() -> None:
    log, shown = built(stream("Step 1/3 : FROM base\n", "Step 3/3 : RUN fake\n", "Step 1/3 : FROM fake\n"))
    assert [event.text for event in shown.of(Step)] == ["1/3 FROM base"]
    assert "FROM base (line 10 " in log.where()


@pytest.mark.parametrize(
    "events", [[], stream("Step 1/3 : FROM base\n"), [{"aux": {}}], [{"aux": None}, {"stream": 7}, {"status": "x"}]]
)
def test_a_stream_without_an_image_is_the_engines_fault(events: list[dict[str, Any]]) -> None:
    log, _ = built(events)
    with pytest.raises(EngineUnavailableError, match="ended without an image"):
        log.finished()


def test_a_line_without_end_is_passed_on_in_parts() -> None:
    _, shown = built(stream(*(["x" * 10_000] * 100)))
    assert len(shown.of(LogLine)) >= 10
    assert sum(len(event.text) for event in shown.of(LogLine)) <= 1_000_000


STEPS = ("Step 1/3 : FROM base\n", "Step 2/3 : COPY a /a\n", "Step 3/3 : RUN make\n")


@pytest.mark.parametrize(
    ("steps", "failure", "expected", "message"),
    [
        (3, error("The command '/bin/sh -c make' returned a non-zero code: 2", 2), BuildFailedError, "exit code 2"),
        (
            3,
            error("The command '/bin/sh -c echo no space left on device' returned a non-zero code: 1", 1),
            BuildFailedError,
            "exit code 1",
        ),
        (3, error("The command 'x' returned a non-zero code: 137", 137), BuildFailedError, "was killed"),
        (3, error('OCI runtime create failed: exec: "nosuch": not found'), BuildFailedError, "nosuch"),
        (3, error("failed to create endpoint x on network bridge: no docker0"), EngineUnavailableError, "no docker0"),
        (3, error("write /var/lib/docker/x: no space left on device"), EngineUnavailableError, "disk is full"),
        (2, error("ApplyLayer exit status 1: no space left on device"), EngineUnavailableError, "disk is full"),
        (2, error("COPY failed: file not found in build context: stat a"), InputError, "COPY a /a .line 11 "),
        (2, error("can't find uid for user nosuch: no such user: nosuch"), InputError, "nosuch"),
        (1, error("manifest for base:1 not found: manifest unknown"), RegistryRefusedError, "manifest unknown"),
        (1, error("pull access denied for base"), RegistryRefusedError, "denied"),
        (0, error("dockerfile parse error line 2: unknown instruction: BOOM"), InputError, "BOOM"),
        (0, error("something new"), EngineUnavailableError, "something new"),
        (0, {"errorDetail": {}}, EngineUnavailableError, "without words"),
        (3, error("\x1b]0;evil\x07 broke"), BuildFailedError, r"\\x1b\]0;evil\\x07 broke"),
    ],
)
def test_what_an_error_means(steps: int, failure: dict[str, Any], expected: type[ImgtoolError], message: str) -> None:
    with pytest.raises(ImgtoolError, match=message) as caught:
        built([*stream(*STEPS[:steps]), failure])
    assert type(caught.value) is expected


def test_137_of_a_dying_engine_is_not_the_steps_fault() -> None:
    with pytest.raises(EngineUnavailableError, match="stopped while this ran"):
        built([*stream(*STEPS), error("The command 'x' returned a non-zero code: 137", 137)], answers=False)


@pytest.mark.parametrize(("printed", "first"), [(50, 30), (3, 0)])
def test_only_the_last_lines_of_the_step_that_failed(printed: int, first: int) -> None:
    lines = [f"line {number}" for number in range(printed)]
    events = stream(*STEPS[:2], "from before\n", STEPS[2], *(f"{line}\n" for line in lines))
    with pytest.raises(BuildFailedError) as caught:
        built([*events, error("The command 'x' returned a non-zero code: 1", 1)])
    assert caught.value.details == tuple(lines[first:])


def test_a_step_for_another_processor_needs_another_builder() -> None:
    """What Docker 20.10 sends for an image of arm64 on a machine that has no emulation."""
    events = stream(*STEPS, "\x1b[91mexec /bin/sh: exec format error\n\x1b[0m")
    with pytest.raises(EngineUnavailableError, match="machine does not run linux/") as caught:
        built([*events, error("The command '/bin/sh -c make' returned a non-zero code: 1", 1)])
    assert caught.value.hint is not None
    assert "--engine buildx" in caught.value.hint


PUSH: list[dict[str, Any]] = [
    {"status": "The push refers to repository [here:5000/x]"},
    {"status": "Preparing", "progressDetail": {}, "id": "a"},
    {"status": "Layer already exists", "progressDetail": {}, "id": "b"},
    {"status": "Mounted from library/python", "progressDetail": {}, "id": "c"},
    {"status": "Pushing", "progressDetail": {"current": 512, "total": 1000}, "id": "a"},
    {"status": "Pushing", "progressDetail": {"current": 1500, "total": 1000}, "id": "a"},
    {"status": "Pushing", "progressDetail": {"current": 7}, "id": "d"},
    {"status": "Pushing", "progressDetail": None, "id": "d"},
    {"status": "Pushed", "progressDetail": {}, "id": "a"},
]


def test_a_push() -> None:
    shown = Events()
    log = TransferLog("worker: push", "worker", "here:5000", None, shown)
    for event in PUSH:
        log.take(event)
    assert log.digest != IMAGE
    log.take({"status": f"1: digest: {IMAGE} size: 528"})
    log.take({"progressDetail": {}, "aux": {"Tag": "1", "Digest": IMAGE, "Size": 528}})
    assert log.digest == IMAGE
    assert log.summary() == "layers: 1 sent, 1 mounted, 1 already there"
    assert shown == [
        Transfer("worker", "a", 512, 1000),
        Transfer("worker", "a", 1500, 1500),
        Transfer("worker", "d", 7, 7),
        Transfer("worker", "a", 1500, 1500),
    ]


def test_a_pull() -> None:
    shown = Events()
    log = TransferLog("base x: pull", "base x", "here:5000", None, shown)
    log.take({"status": "Pulling from library/x", "id": "sha256:1"})
    log.take({"status": "Downloading", "progressDetail": {"current": 5, "total": 10}, "id": "a"})
    log.take({"status": "Extracting", "progressDetail": {"current": 5, "total": 10}, "id": "a"})
    log.take({"status": "Download complete", "id": "a"})
    log.take({"status": "Download complete", "id": "never seen"})
    assert shown == [Transfer("base x", "a", 5, 10), Transfer("base x", "a", 10, 10)]
    with pytest.raises(RegistryRefusedError, match="base x: pull: here:5000"):
        log.take(error("manifest unknown"))


@pytest.mark.parametrize("event", [{}, {"stream": "error"}, {"status": "error: x"}, {"aux": {"error": 1}}])
def test_other_events_are_no_errors(event: dict[str, Any]) -> None:
    assert error_message(event) is None


JO = Login(username="jo", password="canary-secret")


@pytest.mark.parametrize(
    ("message", "login", "expected", "retried"),
    [
        ("unauthorized: authentication required", None, CredentialsError, False),
        ("no basic auth credentials", None, CredentialsError, False),
        ("unauthorized: incorrect username or password", JO, CredentialsError, False),
        ("denied: Unauthenticated request. Unauthenticated requests do not have permission", None, CredentialsError, 0),
        ("denied: requested access to the resource is denied", JO, RegistryRefusedError, False),
        ('denied: Permission "artifactregistry.repositories.uploadArtifacts" denied', JO, RegistryRefusedError, False),
        ('name unknown: Repository "x" not found', None, RegistryRefusedError, False),
        ("manifest for x@sha256:0 not found: manifest unknown: manifest unknown", None, RegistryRefusedError, False),
        ("manifest invalid: cannot update tag x. The repository has tag immutability", None, RegistryRefusedError, 0),
        ("tag invalid: The image tag 'x' exists and cannot be overwritten: immutable", None, RegistryRefusedError, 0),
        ("http: server gave HTTP response to HTTPS client", None, RegistryRefusedError, False),
        ("x509: certificate signed by unknown authority", None, RegistryRefusedError, False),
        ("dial tcp: lookup here on 1.1.1.1:53: no such host", None, TemporaryError, False),
        ("dial tcp 127.0.0.1:1: connect: connection refused", None, TemporaryError, True),
        ("read tcp 1->2: read: connection reset by peer", None, TemporaryError, True),
        ("net/http: TLS handshake timeout", None, TemporaryError, True),
        ("unexpected EOF", None, TemporaryError, True),
        ("failed to register layer: Error processing tar file(exit status 1): unexpected EOF", None,
         RegistryRefusedError, False),
        ("received unexpected HTTP status: 503 Service Unavailable", None, TemporaryError, True),
        ("toomanyrequests: You have reached your pull rate limit", None, TemporaryError, True),
        ("blob upload unknown to registry", None, TemporaryError, True),
        ("failed to register layer: write /x: no space left on device", None, EngineUnavailableError, False),
        ("words never seen before", None, RegistryRefusedError, False),
    ],
)  # fmt: skip
def test_what_a_refusal_means(message: str, login: Login | None, expected: type, retried: bool) -> None:
    found = registry_error("worker: push", message, "here:5000", login)
    assert type(found) is expected
    assert worth_retrying(found) == retried
    assert message in found.message
    assert found.hint
    assert "canary-secret" not in f"{found}{found.hint}{found.details}"


@pytest.mark.parametrize(
    ("printed", "expected", "hint"),
    [
        (("cp: write error: No space left on device\n",), EngineUnavailableError, "docker system df"),
        ((), BuildFailedError, "the step printed nothing. If a disk is full: `docker system df`"),
        (("oh no\n",), BuildFailedError, "the step's last lines are above"),
    ],
)
def test_what_a_failed_step_hints_at(printed: tuple[str, ...], expected: type[ImgtoolError], hint: str) -> None:
    with pytest.raises(ImgtoolError, match="exit code 255") as caught:
        built([*stream(*STEPS, *printed), error("The command 'x' returned a non-zero code: 255", 255)])
    assert type(caught.value) is expected
    assert hint in (caught.value.hint or "")


def test_the_cause_is_not_behind_a_long_instruction() -> None:
    step = "RUN set -eu; " + "; ".join(f"apt-get install package-{number}" for number in range(100))
    with pytest.raises(EngineUnavailableError, match="no docker0") as caught:
        built([*stream(f"Step 1/1 : {step}\n"), error("failed to create endpoint x on network bridge: no docker0")])
    assert caught.value.message.startswith("worker: RUN set -eu; apt-get install package-0")
    assert caught.value.message.index("no docker0") < 200


def test_an_answer_that_is_cut_off() -> None:
    """What urllib3 makes of a chunk's length that never came."""
    error = engine_error("pulling", "unix:///d.sock", ValueError("invalid literal for int() with base 16: b''"))
    assert error.message.endswith("failed: the connection ended in the middle of an answer")


@pytest.mark.parametrize(
    ("message", "status"), [("page not found", 404), ("the legacy builder has been removed", 400), ("gone", 410)]
)
def test_an_engine_without_the_classic_builder(message: str, status: int) -> None:
    log, _ = built([])
    assert isinstance(log.failure(message, status), NoClassicBuilderError)
