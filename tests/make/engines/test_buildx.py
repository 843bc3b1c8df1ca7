"""buildx: what it is started with, and what its output means. The texts are those that buildx 0.29 printed."""

from __future__ import annotations

import base64
import errno
import json
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import pytest

from tests.make.engines.support import Events, settings, tar_of, wait_for
from training_imgtool.base.errors import (
    BuildFailedError,
    CredentialsError,
    EngineUnavailableError,
    ImgtoolError,
    InputError,
    LocalFileError,
    TemporaryError,
)
from training_imgtool.base.progress import LogLine, Note, Step, Transfer
from training_imgtool.base.reference import Login
from training_imgtool.base.settings import SecretSource, Settings
from training_imgtool.make.engines.buildx.log import Attempt, SolveLog, failure
from training_imgtool.make.engines.buildx.program import list_builders
from training_imgtool.make.engines.buildx.request import Solve
from training_imgtool.make.engines.buildx.solve import Buildx
from training_imgtool.make.engines.engine import Engine

DIGEST, CONFIG = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
RUN = {"digest": "sha256:1", "name": "[system 2/3] RUN echo oh no; exit 7"}
EXIT_7 = (
    'ERROR: failed to build: failed to solve: process "/bin/sh -c exit 7" did not complete successfully: exit code: 7'
)
FAKE = """\
#!/bin/sh
here=$(dirname "$0")
printf '%s\\n' "$@" > "$here/argv"
env > "$here/env"
cp "$DOCKER_CONFIG/config.json" "$here/config.json" 2>/dev/null
while [ $# -gt 1 ]; do
  [ "$1" = --metadata-file ] && cat "$here/metadata" > "$2"
  [ "$1" = --file ] && cp "$2" "$here/Dockerfile"
  shift
done
(cd "$1" && find . -type f) > "$here/context"
cat "$here/stderr" >&2
exit "$(cat "$here/status")"
"""
SILENT = """\
#!/bin/sh
here=$(dirname "$0")
[ "$1" = ls ] && echo >> "$here/asked" && exec cat "$here/ls"
cat "$here/stderr" >&2
grep -q inactive "$here/ls" && exec sleep 60
until [ -s "$here/asked" ]; do sleep 0.02; done
cat "$here/end" >&2
exit 1
"""


def event(**parts: object) -> str:
    return json.dumps(parts) + "\n"


def printed(text: str, vertex: str = "sha256:1") -> str:
    return event(logs=[{"vertex": vertex, "stream": 1, "data": base64.b64encode(text.encode()).decode()}])


def log_of(*lines: str, hidden: tuple[str, ...] = ()) -> tuple[SolveLog, Events]:
    events = Events()
    log = SolveLog("system cpu", events, hidden)
    for line in lines:
        log.take(line)
    log.finish()
    return log, events


def error_of(*lines: str) -> ImgtoolError:
    log, _ = log_of(event(vertexes=[{**RUN, "started": "2026"}]), *lines)
    work = solve(is_whole=True, name="registry.example.com/team/demo:system-1")
    return failure(Attempt(solve=work, builder="builder team", log=log), 1)


def test_progress() -> None:
    log, events = log_of(
        event(vertexes=[{"digest": "sha256:0", "name": "[internal] load .dockerignore", "started": "2026"}]),
        event(vertexes=[RUN]),
        event(vertexes=[{**RUN, "started": "2026"}]),
        event(vertexes=[{**RUN, "started": "2026", "completed": "2026"}]),
        event(statuses=[{"id": "transferring context:", "vertex": "x", "current": 42}]),
        event(statuses=[{"id": DIGEST, "vertex": "x", "current": 5, "total": 10}]),
        printed("one\ntw"),
        printed("o\nleft"),
        "not json {\n",
    )
    assert events.of(Step) == [Step("system cpu", "2/3 RUN echo oh no; exit 7")]
    assert [line.text for line in events.of(LogLine)] == ["one", "two", "left"]
    assert events.of(Transfer) == [
        Transfer("system cpu", "context", 42, None),
        Transfer("system cpu", DIGEST[:19], 5, 10),
    ]
    assert (log.instruction, log.tail, log.words) == ("RUN echo oh no; exit 7", ("one", "two", "left"), "not json {")


def test_a_secret_that_a_step_prints_is_hidden() -> None:
    log, events = log_of(event(vertexes=[{**RUN, "started": "2026"}]), printed("got hunter22!\n"), hidden=("hunter22",))
    assert [line.text for line in events.of(LogLine)] == ["got ***!"]
    assert log.tail == ("got ***!",)


def test_a_secret_in_two_parts_and_of_no_text_is_hidden() -> None:
    """BuildKit cuts what a step prints anywhere, in the middle of a character too."""
    value = b"gr\xc3\xbc\xc3\x9fe-\xff-pass"
    parts = [
        {"vertex": "sha256:1", "data": base64.b64encode(part).decode()} for part in (value[:3], value[3:] + b"!\n")
    ]
    log, _ = log_of(*(event(logs=[part]) for part in parts), hidden=(value.decode(errors="replace"),))
    log.take("ERROR: no gr\u00fc\u00dfe-\ufffd-pass here")
    assert (log.words, log.hid) == ("no *** here", True)


def test_a_secret_that_a_step_printed_is_in_the_builders_log(fake: Path) -> None:
    (fake / "stderr").write_text(event(vertexes=[{**RUN, "started": "2026"}]) + printed("got hunter22!\n"))
    for hidden, notes in ((("hunter22",), 1), (("hunter23",), 0)):
        events = Events()
        Buildx(machine(fake), "team").run(solve(hidden=hidden), events)
        assert len([note for note in events.of(Note) if "a step printed a secret" in note.text]) == notes


def test_a_step_that_fails_is_named_with_its_line_in_the_rendered_dockerfile() -> None:
    error = error_of(printed("oh no\n"), "Dockerfile:2\n", "--------------------\n", f"{EXIT_7}\n")
    assert isinstance(error, BuildFailedError)
    assert error.message == (
        "system cpu: RUN echo oh no; exit 7 (line 2 of the rendered Dockerfile): ended with exit code 7"
    )
    assert error.details == ("oh no",)


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        ('no builder "team" found', EngineUnavailableError, "builder team"),
        ("failed to build: context deadline exceeded", EngineUnavailableError, "builder team"),
        (
            "failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF",
            EngineUnavailableError,
            "stopped while this ran",
        ),
        ("failed to solve: Unavailable: error reading from server: EOF", EngineUnavailableError, "stopped while"),
        ("failed to solve: write /var/lib/x: no space left on device", EngineUnavailableError, "a disk is full"),
        (
            "failed to solve: failed to push registry.example.com/x:y: unexpected status: 401 Unauthorized",
            CredentialsError,
            "registry.example.com refused through builder team",
        ),
        (
            "failed to solve: h:1/x@sha256:0: failed to resolve source metadata for h:1/x@sha256:0: connection refused",
            TemporaryError,
            "h:1 refused",
        ),
        (
            "failed to solve with frontend x: failed to do request: https://registry-1.docker.io/v2/x: no such host",
            TemporaryError,
            "docker.io refused through builder team: failed to do request",
        ),
        ("failed to solve: dockerfile parse error on line 2: unknown flag: --mont", InputError, "unknown flag: --mont"),
        (
            'failed to solve: failed to compute cache key: failed to calculate checksum of ref a::b: "/x": not found',
            InputError,
            '"/x": not found',
        ),
        ("failed to solve: secret nope: not found", InputError, "secret nope"),
        ("unknown flag: --provenance", EngineUnavailableError, "this buildx is too old"),
        ("failed to solve: something else altogether", BuildFailedError, "something else altogether"),
    ],
)
def test_the_meaning_of_a_failure(words: str, kind: type[ImgtoolError], says: str) -> None:
    error = error_of(f"ERROR: failed to build: {words}\n")
    assert type(error) is kind
    assert says in error.message
    assert "failed to build" not in error.message


def test_a_full_disk_that_only_the_step_names() -> None:
    error = error_of(printed("cp: write error: No space left on device\n"), f"{EXIT_7}\n")
    assert isinstance(error, EngineUnavailableError)
    assert error.hint is not None
    assert "docker buildx prune --builder team" in error.hint


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """The folder of a docker-buildx that writes down what it got, and answers what files there say."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker-buildx").write_text(FAKE)
    (folder / "docker-buildx").chmod(0o755)
    (folder / "metadata").write_text(
        json.dumps({"containerimage.digest": DIGEST, "containerimage.config.digest": CONFIG})
    )
    (folder / "stderr").write_text("")
    (folder / "status").write_text("0")
    return folder


def machine(fake: Path) -> Settings:
    return settings(fake.parent, PATH=f"{fake}:/usr/bin:/bin", TOKEN="hunter22")


def solve(context: Callable[[IO[bytes]], None] | None = None, **changes: object) -> Solve:
    empty = BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    values: dict[str, object] = {
        "subject": "system cpu",
        "dockerfile": "FROM x\nRUN true\n",
        "context": context or (lambda stream: _write(stream, empty.getvalue())),
        "name": "registry.internal:5000/team/demo:system-1",
        "plain_http": True,
        "platform": "linux/amd64",
        "logins": {},
        "no_cache": False,
        **changes,
    }
    return Solve(**values)  # type: ignore[arg-type]


def _write(stream: IO[bytes], data: bytes) -> None:
    stream.write(data)


def test_what_buildx_is_started_with(fake: Path) -> None:
    (fake.parent / ".docker").mkdir()
    helpers = {"credsStore": "x", "credHelpers": {"registry.internal:5000": "x", "other.example": "y"}}
    (fake.parent / ".docker/config.json").write_text(json.dumps(helpers))
    stage = solve(
        lambda stream: _write(stream, tar_of({"trainer/task.py": b"x"})),
        secrets=(SecretSource(id="token", env="TOKEN"), SecretSource(id="conf", file=Path("/etc/pip.conf"))),
        logins={"registry.internal:5000": Login(username="robot", password="pw")},
    )
    solved = Buildx(machine(fake), "team").run(stage, Events())
    assert (solved.digest, solved.config) == (DIGEST, CONFIG)
    words = (fake / "argv").read_text().splitlines()
    pairs = list(pairwise(words))
    assert words[0] == "build"
    assert ("--builder", "team") in pairs
    output = "type=image,name=registry.internal:5000/team/demo:system-1,push=true,registry.insecure=true"
    assert ("--output", output) in pairs
    assert {"--provenance=false", "--sbom=false"} < {*words}
    assert ("--progress", "rawjson") in pairs
    assert [value for name, value in pairs if name == "--secret"] == ["id=token,env=TOKEN", "id=conf,src=/etc/pip.conf"]
    assert "hunter22" not in " ".join(words)
    assert (fake / "context").read_text() == "./trainer/task.py\n"
    assert json.loads((fake / "config.json").read_text()) == {
        "auths": {"registry.internal:5000": {"auth": base64.b64encode(b"robot:pw").decode()}},
        "credHelpers": {"other.example": "y"},
    }
    environ = dict(line.partition("=")[::2] for line in (fake / "env").read_text().splitlines())
    assert not Path(environ["DOCKER_CONFIG"]).exists()
    assert environ["BUILDX_CONFIG"] == str(fake.parent / ".docker/buildx")


@pytest.mark.parametrize("epoch", [0, 86400])
def test_the_builder_gets_the_date_that_the_key_has(fake: Path, epoch: int) -> None:
    Buildx(settings(fake.parent, PATH=f"{fake}:/usr/bin:/bin", SOURCE_DATE_EPOCH="5"), None).run(
        solve(epoch=epoch), Events()
    )
    words = list(pairwise((fake / "argv").read_text().splitlines()))
    assert [value for name, value in words if name == "--build-arg"] == [f"SOURCE_DATE_EPOCH={epoch}"] * bool(epoch)
    assert "SOURCE_DATE_EPOCH" not in (fake / "env").read_text()


def test_success_without_a_digest_is_none(fake: Path) -> None:
    (fake / "metadata").write_text("{}")
    with pytest.raises(EngineUnavailableError, match="does not report the digest"):
        Buildx(machine(fake), None).run(solve(), Events())


def test_a_failure_of_the_program(fake: Path) -> None:
    (fake / "status").write_text("1")
    (fake / "stderr").write_text(f"{event(vertexes=[{**RUN, 'started': '2026'}])}{EXIT_7}\n")
    with pytest.raises(BuildFailedError, match="exit code 7"):
        Buildx(machine(fake), None).run(solve(), Events())


@pytest.mark.parametrize("gone", [False, True])
def test_a_builder_that_falls_silent_is_asked_whether_it_answers(
    fake: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """One may lie behind a network that went away: buildx itself waits for it for ever."""
    monkeypatch.setattr("training_imgtool.make.engines.buildx.solve.SILENCE_SECONDS", 0.0)
    row = {"Name": "team", "Driver": "remote", "Nodes": [{"Status": "inactive" if gone else "running"}]}
    (fake / "ls").write_text(json.dumps(row))
    (fake / "stderr").write_text(event(vertexes=[{**RUN, "started": "2026"}]))
    (fake / "end").write_text(f"{EXIT_7}\n")
    (fake / "docker-buildx").write_text(SILENT)
    kind, says = (
        (EngineUnavailableError, "team: the engine stopped answering") if gone else (BuildFailedError, "code 7")
    )
    with pytest.raises(kind, match=says):
        Buildx(machine(fake), "team").run(solve(), Events())


def test_stop_waits_until_the_files_are_gone(fake: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process ends without another look at its threads."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (fake / "docker-buildx").write_text('#!/bin/sh\ntouch "$(dirname "$0")/begun"\nexec sleep 60\n')
    buildx = Buildx(machine(fake), "team")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(buildx.run, solve(), Events())
        assert wait_for((fake / "begun").exists, 20)
        assert [*(tmp_path / "tmp").iterdir()]
        buildx.stop()
        assert not [*(tmp_path / "tmp").iterdir()]
        with pytest.raises(EngineUnavailableError, match="stopped"):
            running.result()


def test_a_folder_for_temporary_files_that_is_full(fake: Path) -> None:
    def fail(_: IO[bytes]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(LocalFileError, match=r"system cpu: .* written to /\S+: No space left on device") as caught:
        Buildx(machine(fake), "team").run(solve(fail), Events())
    assert "TMPDIR" in str(caught.value.hint)


def test_a_machine_without_buildx(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="buildx is not installed"):
        Buildx(settings(tmp_path, PATH=str(tmp_path)), None)


def test_without_buildx_the_way_that_needs_no_engine_is_named_first(tmp_path: Path) -> None:
    options = SimpleNamespace(engine="auto", builder=None)
    machine = SimpleNamespace(registries=None, settings=settings(tmp_path, PATH=str(tmp_path)))
    with pytest.raises(EngineUnavailableError, match=r"image needs an engine \(no Python\)") as caught:
        Engine(cast("Any", SimpleNamespace(options=options, machine=machine))).require("image", "no Python", "get one")
    assert str(caught.value.hint).startswith("get one: install Docker's buildx plugin")


def test_the_builders_that_buildx_lists(fake: Path) -> None:
    nodes = [{"Name": "team0", "Endpoint": "tcp://b:1", "Status": "running"}]
    lines = [
        {"Name": "team", "Driver": "remote", "Current": True, "Nodes": nodes},
        {"Name": "default", "Driver": "", "Err": "Cannot connect to the Docker daemon", "Nodes": [{"Name": "default"}]},
    ]
    (fake / "docker-buildx").write_text(f"#!/bin/sh\ncat <<'E'\n{chr(10).join(map(json.dumps, lines))}\nE\n")
    team, default = list_builders(machine(fake))
    assert (team.name, team.driver, team.current, team.endpoints, team.running) == (
        "team",
        "remote",
        True,
        ("tcp://b:1",),
        True,
    )
    assert (default.running, default.error) == (False, "Cannot connect to the Docker daemon")
