"""The Python interface: its names, its results, its errors, and the examples of docs/howto/python.md."""

from __future__ import annotations

import json
import logging
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import training_imgtool as imgtool
from tests.integration.push_world import Machine, Project
from tests.integration.verify_world import open_toy
from tests.local.project import Project as Cluster
from tests.local.project import unique
from tests.make.engines.support import shared_engine
from training_imgtool.plan import project_files

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs/howto/python.md").read_text()
UV = Path(sys.executable).parent / "uv"
FUNCTIONS = {"job", "plan", "push", "run", "verify"}
RESULTS = {"ByRole", "Image", "Plan", "PlannedImage", "Replica", "Run", "VerifiedImage"}
ERRORS = {"FieldError", "FieldListError", "ImgtoolError", "VerificationError"}
ROLES = ["master", "worker", "ps"]


def example(title: str) -> str:
    """The program below a heading of the page."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0], re.DOTALL)
    return str(block)


@pytest.fixture
def world(tmp_path: Path, registry: str, project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project that this process can push, as a user of a machine of its own; `images/mnist` below the folder."""
    machine = Machine(tmp_path / "machine", f"{registry}/{unique(tmp_path)}", registry)
    machine.give(project.wheels)
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "here/images").mkdir(parents=True)
    project.folder = project.folder.rename(tmp_path / "here/images/mnist")
    monkeypatch.chdir(tmp_path / "here")
    return project


def test_the_public_names() -> None:
    assert set(imgtool.__all__) == FUNCTIONS | RESULTS | ERRORS | {"__version__"}


@pytest.mark.parametrize("first", ["", "import training_imgtool.plan.inputs, training_imgtool.verify.session"])
def test_an_import_has_no_effect_but_its_names(first: str) -> None:
    program = f"""
import gc, sys, signal, logging
before = [signal.getsignal(n) for n in signal.valid_signals()], gc.get_threshold()
{first}
import training_imgtool as imgtool
assert "training_imgtool.base.results" not in sys.modules and set(imgtool.__all__) <= set(dir(imgtool))
assert not hasattr(imgtool, "misspelt")
assert all(type(getattr(imgtool, name)).__name__ == "function" for name in {FUNCTIONS!r})
assert before == ([signal.getsignal(n) for n in signal.valid_signals()], gc.get_threshold())
assert not logging.root.handlers and not logging.getLogger("training_imgtool").handlers
if not {bool(first)}:
    ours = [name for name in sys.modules if name.startswith("training_imgtool.")]
    assert len(ours) < 8, ours
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.registry
def test_plan_push_and_job_agree(world: Project, capfd: pytest.CaptureFixture[str]) -> None:
    handlers = signal.getsignal(signal.SIGINT), list(logging.root.handlers)
    events: list[dict[str, Any]] = []
    plan = imgtool.plan(world.folder, locked=True)
    assert list(plan.images) == ROLES
    assert plan.images["worker"].needs_engine is None
    first = imgtool.push(world.folder, locked=True, progress=events.append)
    again = imgtool.push(str(world.folder), roles=["ps"], tags=["today"], locked=True)
    assert {image.outcome for image in first.values()} == {"appended"}
    assert {role: image.outcome for role, image in again.items()} == {"ps": "found"}
    assert first["ps"].digest == again["ps"].digest
    assert first["ps"].reference.endswith(f"@{first['ps'].digest}")
    assert {event["subject"] for event in events if event["event"] == "done"} >= set(ROLES)
    body = imgtool.job(world.folder, images=first, target="vertex")
    assert body == imgtool.job(world.folder, target="vertex", locked=True)
    assert pickle.loads(pickle.dumps((plan, first))) == (plan, first)
    with pytest.raises(AttributeError):
        first["ps"].seconds = 0  # type: ignore[misc]
    assert (signal.getsignal(signal.SIGINT), list(logging.root.handlers)) == handlers
    assert capfd.readouterr() == ("", "")


def test_errors_have_the_commands_exit_code_and_every_field(tmp_path: Path) -> None:
    (tmp_path / "image.yaml").write_text("name: x\ntensorflow: 2.15.1\nroles: {worker: {count: 0.5, machin: 1}}\n")
    with pytest.raises(imgtool.FieldListError) as found:
        imgtool.plan(tmp_path)
    assert found.value.exit_code == 3
    places = {error.field: error.location or "" for error in found.value.errors}
    assert "image.yaml:3:" in places["roles.worker.count"]
    assert "image.yaml:3:" in places["roles.worker.machin"]
    with pytest.raises(imgtool.ImgtoolError, match="roles: 'chief': expected master") as refused:
        imgtool.push(tmp_path, roles=["chief"])
    assert refused.value.exit_code == 2
    with pytest.raises(imgtool.ImgtoolError, match=r"nowhere") as missing:
        imgtool.push(tmp_path / "nowhere")
    assert missing.value.exit_code == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: imgtool.push(tags="prod"),
        lambda: imgtool.push(roles="master"),
        lambda: imgtool.plan(123),  # type: ignore[arg-type]
        lambda: imgtool.plan("\0"),
        lambda: imgtool.plan(None),  # type: ignore[arg-type]
        lambda: imgtool.job(registry=5),  # type: ignore[arg-type]
        lambda: imgtool.plan(changes={"tensorflow": 2.15}),  # type: ignore[dict-item]
        lambda: imgtool.run(workers=-1),
        lambda: imgtool.run(ps=True),
        lambda: imgtool.run(args="--epochs=1"),
        lambda: imgtool.verify(accept="engine"),
    ],
)
def test_arguments_of_another_kind_are_usage_errors(call: Callable[[], object]) -> None:
    with pytest.raises(imgtool.ImgtoolError, match=r"^\w+: expected ") as caught:
        call()
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_read_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_files, "open_spec", _full_disk)
    with pytest.raises(imgtool.ImgtoolError, match="/x: No space left on device") as full:
        imgtool.plan(tmp_path)
    assert full.value.exit_code == 9


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device", "/x")


@pytest.mark.long
@pytest.mark.registry
@pytest.mark.network
def test_verify_tells_the_good_image_from_another(
    tmp_path: Path, registry_address: str, services_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_toy(registry_address, services_env, tmp_path) as toy:
        other = toy.faulty("extra", {"etc/extra": b"x"})
        for name, value in {**services_env, **toy.env}.items():
            monkeypatch.setenv(name, value)
        good = imgtool.verify(toy.folder, locked=True)["master"]
        assert good.reference == str(toy.good)
        assert good.checks.keys() == {"blobs", "base", "layers", "config", "manifest", "attestations"}
        monkeypatch.setenv("IMGTOOL_REGISTRY", other["IMGTOOL_REGISTRY"])
        with pytest.raises(imgtool.VerificationError) as wrong:
            imgtool.verify(toy.folder, locked=True)
    assert any("layers: found" in line for line in wrong.value.details)
    assert wrong.value.exit_code == 10


@pytest.mark.long
@pytest.mark.engine
def test_run_returns_or_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared_engine(tmp_path / "home") as engine:
        for code in (0, 3):
            made = Cluster(
                tmp_path / str(code),
                engine,
                {"master": f"echo hello; exit {code}\n"},
                name=unique(tmp_path),
                roles={"master": {"machine": "n1-standard-4"}},
            )
            for name, value in made.env.items():
                monkeypatch.setenv(name, value)
            lines: list[dict[str, Any]] = []
            try:
                if code:
                    with pytest.raises(imgtool.VerificationError, match="master exited 3") as failed:
                        imgtool.run(made.folder, job_dir=tmp_path / "job")
                    assert "hello" in failed.value.details
                else:
                    ended = imgtool.run(made.folder, job_dir=tmp_path / "job", progress=lines.append)
                    assert [(one.name, one.exit_code) for one in ended.replicas] == [("master", 0)]
                    assert "hello" in [line["text"] for line in lines if line["event"] == "log"]
            finally:
                left = made.left()
                made.remove()
            assert not left


@pytest.mark.registry
def test_the_notebook_cell(world: Project, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example("A notebook cell"), "cell", "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"^worker: appended, 127.0.0.1:\d+/\S+@sha256:[0-9a-f]{64}$", said, re.MULTILINE)
    assert world.folder.exists()


class RefusedError(Exception):
    """Stands for the exception that Airflow does not retry."""


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **values: Any) -> None:
    """Puts a module of this name in place of a package that is too heavy for a quick test."""
    module = ModuleType(name)
    module.__dict__.update(values)
    monkeypatch.setitem(sys.modules, name, module)


def _undecorated(**_: Any) -> Callable[[Any], Any]:
    return lambda function: function


@pytest.mark.registry
def test_the_airflow_task(world: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "airflow")
    stand_in(monkeypatch, "airflow.exceptions", AirflowFailException=RefusedError)
    stand_in(monkeypatch, "airflow.sdk", task=_undecorated)
    names: dict[str, Any] = {}
    exec(compile(example("An Airflow task"), "dag", "exec"), names)
    pushed = names["push_images"]("images/mnist")
    assert json.loads(json.dumps(pushed)) == {role: str(image) for role, image in imgtool.push(world.folder).items()}
    with pytest.raises(RefusedError, match=r"nowhere.*\(exit code 3\)"):
        names["push_images"]("nowhere")
    monkeypatch.setenv("IMGTOOL_REGISTRY", "127.0.0.1:9/closed")
    with pytest.raises(imgtool.ImgtoolError) as unreachable:
        names["push_images"]("images/mnist")
    assert unreachable.value.retryable


class Jobs:
    """A client of Vertex AI that keeps what it is given."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def __getattr__(self, _: str) -> Callable[..., Jobs]:
        return lambda **_: self

    def create(self, *, parent: str, body: dict[str, Any]) -> Jobs:
        assert parent == "projects/p/locations/us-central1"
        self.bodies.append(body)
        return self

    def execute(self) -> dict[str, str]:
        return {"name": "projects/p/locations/us-central1/customJobs/1"}


@pytest.mark.registry
def test_the_pipelines_components(world: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "kfp", dsl=type("dsl", (), {"component": _undecorated, "pipeline": _undecorated}))
    jobs = Jobs()
    monkeypatch.setattr("googleapiclient.discovery.build", lambda *_, **__: jobs)
    names: dict[str, Any] = {}
    exec(compile(example("Kubeflow and Vertex AI Pipelines"), "pipeline", "exec", dont_inherit=True), names)
    pushed = names["push_images"]("images/mnist")
    assert list(pushed) == ROLES
    assert names["submit_job"]("images/mnist", pushed, "p", "us-central1").endswith("/customJobs/1")
    assert jobs.bodies == [imgtool.job(world.folder, target="vertex", images=pushed)]
