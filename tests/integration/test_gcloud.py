"""gcloud and Google's API client send exactly our fields, to a server that knows the strict schema.

gcloud's own offline checks are few: it forwards unknown keys and wrong values. So the server refuses what the
service would, and the last test shows that `lint` refuses it first.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import schemas
from tests.jobs.fault import faulty
from tests.jobs.faults import FAULTS
from tests.jobs.specs import CASES, Case, images
from tests.servers.google_jobs import JobServer, gcloud_environment, gcloud_runner, serving
from training_imgtool.base.errors import FieldListError
from training_imgtool.jobs import Format, JobFile, JobOptions, job_data
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.jobs.targets.google.gcloud import flag_command
from training_imgtool.jobs.text import dump
from training_imgtool.model.targets import Target

Run = Callable[[tuple[str, ...]], str | None]
AI, VX = Target.AI_PLATFORM, Target.VERTEX
QUICK = {("everything", AI), ("strange-args", AI), ("runtime-custom", AI), ("tpu-worker", AI)}
QUICK |= {
    ("tuning", VX),
    ("private", VX),
    ("workers", VX),
    ("gpu-trio", VX),
    ("master-and-ps", VX),
    ("vertex-only", VX),
    ("everything", VX),
}
ALL = [(case, target) for case in CASES for target in case.targets if target in {AI, VX}]


def _cases() -> Iterator[Any]:
    for case, target in ALL:
        marks = [] if (case.name, target) in QUICK else [pytest.mark.long]
        yield pytest.param(case, target, id=f"{case.name}.{target}", marks=marks)


@pytest.fixture(scope="module")
def server() -> Iterator[JobServer]:
    schemas.need()
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def gcloud(server: JobServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which gcloud speaks to the server, without credentials."""
    return {**os.environ, **gcloud_environment(server, tmp_path_factory.mktemp("gcloud"))}


@pytest.fixture(scope="module")
def run(gcloud: dict[str, str]) -> Iterator[Run]:
    """Has one process of gcloud's own code run a command; its error, or None."""
    reading, writing = os.pipe()
    command = gcloud_runner(Path(f"/dev/fd/{writing}"))
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with (
        subprocess.Popen(command, env=gcloud, text=True, pass_fds=(writing,), **options) as process,
        os.fdopen(reading) as answers,
    ):
        os.close(writing)
        assert process.stdin is not None

        def ask(words: tuple[str, ...]) -> str | None:
            assert words[0] == "gcloud"
            print(json.dumps(words[1:]), file=process.stdin, flush=True)
            error: str | None = json.loads(answers.readline())
            return error

        yield ask
        process.stdin.close()


def normal(value: Any) -> Any:
    """Data as the wire has it: int64 as text, numbers alike, gcloud's default of false left out."""
    if isinstance(value, dict):
        skipped = {key for key, item in value.items() if key == "enableWebAccess" and item is False}
        return {key: normal(item) for key, item in value.items() if key not in skipped}
    if isinstance(value, list):
        return [normal(item) for item in value]
    return str(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else _number(value)


def _number(value: Any) -> Any:
    return str(float(value)) if isinstance(value, str) and value.isdecimal() and len(value) < 4 else value


def body_for(job: JobFile) -> Any:
    """What the service should be sent for the file: a CustomJob around the CustomJobSpec."""
    if job.target is AI:
        return job.documents[0]
    assert job.api is not None
    return job.api if "studySpec" in job.api else {**job.api, "jobSpec": job.documents[0]}


@pytest.mark.parametrize(("case", "target"), list(_cases()))
def test_the_file_arrives_as_it_is(case: Case, target: Target, run: Run, server: JobServer, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    options = JobOptions(file=str(path), version="0.1.0", **case.options)
    job = job_data(case.spec, images(case.spec), target, options)
    path.write_text(dump(job))
    assert run(job.command) is None
    assert normal(server.bodies[-1]) == normal(body_for(job))


@pytest.mark.parametrize(
    "name",
    ["gpu-trio", "runtime-custom", "tpu-worker"],
)
def test_flags_alone_send_the_same(name: str, run: Run, server: JobServer) -> None:
    case = next(case for case in CASES if case.name == name)
    job = job_data(case.spec, images(case.spec), AI, case.job_options())
    assert job.flags is not None
    assert run(job.flags()) is None
    assert normal(server.bodies[-1]) == normal(job.documents[0])


def test_what_has_no_flag_is_named() -> None:
    case = next(case for case in CASES if case.name == "everything")
    job = job_data(case.spec, images(case.spec), AI, case.job_options())
    with pytest.raises(FieldListError, match=r"trainingInput\.scheduling: .* has no flag for this key"):
        flag_command(job.documents[0], None)


@pytest.mark.parametrize(("case", "target"), [pytest.param(c, t, id=f"{c.name}.{t}") for c, t in ALL])
def test_the_api_client_takes_the_dictionary(
    case: Case, target: Target, server: JobServer, services: dict[Target, Any]
) -> None:
    job = job_data(case.spec, images(case.spec), target, case.job_options())
    body = json.loads(dump(job, Format.JSON))
    if target is AI:
        answer = services[AI].projects().jobs().create(parent="projects/my-project", body=body).execute()
    else:
        parent = f"projects/my-project/locations/{case.spec.job.region}"
        jobs = services[VX].projects().locations()
        kind = jobs.hyperparameterTuningJobs() if "studySpec" in body else jobs.customJobs()
        answer = kind.create(parent=parent, body=body).execute()
    assert answer["state"] in {"QUEUED", "JOB_STATE_PENDING"}
    assert server.bodies[-1] == (job.api or job.documents[0])


@pytest.fixture(scope="module")
def services(server: JobServer) -> Iterator[dict[Target, Any]]:
    """Google's API client, made from the discovery documents that it ships."""
    import httplib2  # type: ignore[import-untyped]
    from googleapiclient.discovery import build

    def made(name: str) -> Any:
        options = {"api_endpoint": server.url}
        return build(name, "v1", http=httplib2.Http(), client_options=options, static_discovery=True)

    clients = {AI: made("ml"), VX: made("aiplatform")}
    yield clients
    for client in clients.values():
        client.close()


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
def test_lint_finds_a_fault_first(fault: Any) -> None:
    region = None if fault.base.endswith("ai-platform") else "us-central1"
    found = [m for m in lint(faulty(fault), "config.yaml", region=region) if m.severity is fault.severity]
    assert any(m.field == fault.field and fault.text in m.message for m in found), [str(m) for m in found]
    if fault.severity is Severity.ERROR:
        assert len(found) == 1, [str(m) for m in found]
        assert found[0].source


REFUSED = [fault for fault in FAULTS if fault.schema and fault.severity is Severity.ERROR]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=[pytest.mark.long] if number % 5 else [])
        for number, fault in enumerate(REFUSED)
    ],
)
def test_the_service_would_refuse_it_too(fault: Any, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(faulty(fault))
    ai = ("gcloud", "ai-platform", "jobs", "submit", "training", "j", "--config", str(path), "--region", "us-central1")
    vertex = (
        "gcloud",
        "ai",
        "custom-jobs",
        "create",
        "--display-name=j",
        "--config",
        str(path),
        "--region=us-central1",
    )
    assert run(ai if fault.base.endswith("ai-platform") else vertex) is not None
