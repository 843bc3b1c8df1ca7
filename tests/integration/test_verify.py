"""`imgtool verify` on small images with one fault each: seen in a container, and read from the registry alone."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run
from tests.integration.verify_world import Toy, open_toy
from tests.verify import images
from tests.verify.images import Change, Layer, Link
from tests.verify.tampering import FORGED
from training_imgtool.cli import app
from training_imgtool.core.reference import parse_repository
from training_imgtool.core.settings import from_environment
from training_imgtool.spec.model import Ignore, Role
from training_imgtool.verify.checks import apply_ignores
from training_imgtool.verify.facts import Finding, Status

pytestmark = pytest.mark.registry

BOTH, DIRECT, DOCKER = ("docker", "direct"), ("direct",), ("docker",)
SITE = "opt/venv/lib/python3.11/site-packages"
INFO = f"{SITE}/tensorflow_cpu-2.15.1.dist-info"
KEY = b"-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def toy(registry_address: str, services_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    with open_toy(registry_address, services_env, tmp_path_factory.mktemp("verify")) as made:
        yield made


def _more_env(*lines: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["config"]["Env"] = [*config["config"]["Env"], *lines]

    return change


def _diff_id(config: dict[str, Any]) -> None:
    config["rootfs"]["diff_ids"][-1] = "sha256:" + "0" * 64


def _architecture(config: dict[str, Any]) -> None:
    config["architecture"] = "arm64"


OTHER_TENSORFLOW: Layer = {
    INFO: None,
    **images.package(
        SITE,
        "tensorflow-cpu",
        "2.14.0",
        {"tensorflow/__init__.py": images.TENSORFLOW.replace("2.15.1", "2.14.0").encode()},
        ("numpy",),
    ),
}
ABSENT = images.package(SITE, "numpy", "1.26.4", {"numpy/__init__.py": b""}, ("absent>=1",))
ANSWERS: Layer = {  # the image's Python says of itself what its reader wants to hear
    f"{SITE}/evil.pth": b"import evil\n",
    f"{SITE}/evil.py": b"import os\nwrite = os.write\nos.write = lambda to, data: write(to, data) and len(data)\n",
}
# name, layers on top of the good image, change of the config, check, what its line says, by which ways
FAULTS: tuple[tuple[str, list[Layer], Change | None, str, str, tuple[str, ...]], ...] = (
    ("tensorflow", [OTHER_TENSORFLOW], None, "tensorflow", "2.14.0; expected 2.15.1", BOTH),
    ("python-gone", [{"opt/venv/bin/python": Link("/usr/bin/python3.12")}], None, "python", "expected 3.11", BOTH),
    ("answers", [ANSWERS], None, "wheels", "evil.pth belongs to no wheel", BOTH),
    ("record", [FORGED["pth"]], None, "wheels", "evil.pth belongs to no wheel", BOTH),
    ("pip-check", [ABSENT], None, "pip check", "requires absent, which is not", BOTH),
    ("import", [{"app/trainer/task.py": b"import numpy\nimport pandas\n"}], None, "trainer", "pandas", BOTH),
    ("raises", [{"app/trainer/task.py": b"raise ValueError('no data')\n"}], None, "trainer", "ValueError: no data",
     DOCKER),
    ("secret", [{"app/account": KEY}], None, "secrets", "/app/account in layer", DIRECT),
    ("secret-removed", [{"app/.npmrc": b"x=y\n"}, {"app/.npmrc": None}], None, "secrets", "/app/.npmrc in", DOCKER),
    # images that the engine refuses to pull, with its own words or none: the registry's copy says why
    ("twice", [{"srv/a": b"", "srv//a": b""}], None, "layers", "/srv/a is in it twice", DOCKER),
    ("hard-link", [{"srv/a": Link("etc/shadow", hard=True)}], None, "layers", "a hard link to etc/shadow", DOCKER),
    ("diff-id", [], _diff_id, "layers", "and the config says sha256:000000000000", BOTH),
    ("platform", [], _architecture, "platform", "found linux/arm64; expected linux/amd64", BOTH),
)  # fmt: skip
# By each way one that the layers show; in containers what only they show, and what the engine refuses.
QUICK = {
    "record-direct",
    "diff-id-direct",
    "answers-docker",
    "raises-docker",
    "secret-removed-docker",
    "hard-link-docker",
}
CASES = [
    pytest.param(
        way,
        *fault[:5],
        id=(name := f"{fault[0]}-{way}"),
        marks=[*([pytest.mark.engine] if way == "docker" else ()), *(() if name in QUICK else (pytest.mark.long,))],
    )
    for fault in FAULTS
    for way in fault[5]
]


WAYS = [pytest.param("docker", marks=pytest.mark.engine), "direct"]


@pytest.mark.parametrize("way", WAYS)
def test_a_good_image_passes(toy: Toy, imgtool: Run, way: str) -> None:
    done = imgtool("verify", "--engine", way, "--locked", toy.folder, env=toy.env)
    assert "MISMATCH" not in done.stdout
    assert "warning" not in done.stdout
    assert "Error" not in done.stderr
    rows = {line.split("  ")[0]: line for line in done.stdout.splitlines() if "  master" in line}
    assert {"image", "base", "python", "tensorflow", "wheels", "pip check", "trainer", "secrets", "size"} <= rows.keys()
    assert "3 packages" in rows["wheels"]
    if way == "docker":
        assert "3.11." in rows["python"]
        assert "on /CPU:0" in rows["compute"]
    else:
        assert "not run" in rows["tensorflow"]
        assert "read and not run" in rows["trainer"]


@pytest.mark.parametrize(("way", "name", "layers", "change", "check", "says"), CASES)
def test_a_fault_is_one_line_and_exit_10(
    toy: Toy,
    imgtool: Run,
    *,
    way: str,
    name: str,
    layers: list[Layer],
    change: Change | None,
    check: str,
    says: str,
) -> None:
    env = toy.faulty(name, layers, change)
    done = imgtool("verify", "--engine", way, "--locked", toy.folder, env=env, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert done.returncode == 10, done.stderr
    line = next(line for line in lines if line.startswith(f"Error: master: {check}: found "))
    assert says in line
    assert len(lines) <= 3, lines  # a secret in /app is no file of the context either


@pytest.mark.long
def test_changed_files_are_seen_from_inside(toy: Toy, imgtool: Run) -> None:
    changed: Layer = {
        "app/trainer/task.py": b"import numpy\n",
        "app/trainer/model.py": Link("/tmp/model.py"),
        "app/trainer/evil.py": b"",
        f"{SITE}/tensorflow/__init__.py": images.TENSORFLOW.encode() + b"evil = 1\n",
        f"{SITE}/six": None,
        f"{SITE}/sitecustomize.py": b"",
    }
    env = toy.faulty("content", [changed], None)
    done = imgtool("verify", "--engine", "docker", "--locked", toy.folder, "--json", env=env, check=False)
    assert done.returncode == 10
    wheels, trainer = json.loads(done.stdout)["mismatches"]
    for phrase in (
        "sitecustomize.py belongs to no wheel",
        "six/__init__.py is missing",
        "__init__.py differs from its",
    ):
        assert phrase in wheels
    for phrase in ("task.py differs", "model.py is a link to /tmp/model.py", "evil.py is not in the context"):
        assert phrase in trainer


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_secret_in_the_environment_is_named_and_not_shown(toy: Toy, imgtool: Run, way: str) -> None:
    env = toy.faulty("env", [], _more_env("DB_PASSWORD=hunter2hunter2"))
    done = imgtool("verify", "--engine", way, "--locked", toy.folder, "--json", env=env, check=False)
    document = json.loads(done.stdout)
    assert done.returncode == 10
    assert not document["ok"]
    assert "DB_PASSWORD in the environment looks like" in " ".join(document["mismatches"])
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_caches_are_a_warning(toy: Toy, imgtool: Run, way: str) -> None:
    left: Layer = {"root/.cache/pip/http/a": bytes(1000), "var/lib/apt/lists/x_Packages": bytes(2_000_000)}
    env = toy.faulty("cache", [left], None)
    done = imgtool("verify", "--engine", way, "--locked", toy.folder, env=env, check=False)
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("Error: "))
    assert "/root/.cache/pip/http/a of layer 8 is put there by no instruction" in error
    row = next(line for line in done.stdout.splitlines() if line.startswith("caches"))
    assert "warning" in row
    assert "/var/lib/apt 2.0 MB" in row


@pytest.mark.engine
def test_no_container_is_left(toy: Toy, imgtool: Run) -> None:
    import docker

    from training_imgtool.engines.docker.probe import UNTIL

    client = docker.from_env()
    containers: list[Any] = []
    try:
        pulled = client.images.pull(str(toy.good.repository), tag=toy.good.digest)
        before = {one.id for one in client.containers.list(all=True, filters={"label": UNTIL}, ignore_removed=True)}
        containers += [client.containers.create(pulled, labels={UNTIL: str(until)}) for until in (10**9, 10**11)]
        imgtool("verify", "--engine", "docker", "--locked", toy.folder, env=toy.env)
        left = {one.id for one in client.containers.list(all=True, filters={"label": UNTIL}, ignore_removed=True)}
        killed_long_ago, at_work = (one.id for one in containers)
        assert killed_long_ago not in left
        assert at_work in left
        assert left <= before | {at_work}
    finally:
        for one in containers:
            with contextlib.suppress(docker.errors.NotFound):
                one.remove(force=True)
        client.close()


def test_an_image_that_is_nowhere_is_an_error_of_its_own(toy: Toy, imgtool: Run) -> None:
    env = {**toy.env, "IMGTOOL_REGISTRY": f"{toy.place}/nothing"}
    done = imgtool("verify", "--engine", "direct", "--locked", toy.folder, env=env, check=False)
    assert done.returncode == 3
    assert "1 of 1 images of the current spec, lock and code are not in the registry: master" in done.stderr
    assert f"imgtool push {toy.folder / 'image.yaml'}" in done.stderr


@pytest.mark.long
@pytest.mark.engine
def test_an_image_that_is_only_in_the_engine(toy: Toy, imgtool: Run) -> None:
    import docker

    image = toy.inputs.images[0]
    assert image.tag is not None
    place = f"{toy.place}/local"
    client = docker.from_env()
    name = f"{place}/toy:{image.tag.name}"
    try:
        client.images.pull(str(toy.good.repository), tag=toy.good.digest).tag(name)
        done = imgtool(
            "verify", "--engine", "docker", "--locked", toy.folder, env={**toy.env, "IMGTOOL_REGISTRY": place}
        )
    finally:
        client.images.remove(name, noprune=True)
        client.close()
    rows = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert " sha256:" in rows["image"]
    assert "MISMATCH" not in done.stdout
    assert "unpacked in 7 layers" in rows["size"]


@pytest.mark.engine
def test_run_pulls_the_stage_that_a_changed_role_starts_from(toy: Toy, tmp_path: Path) -> None:
    """Instead of having the engine install the wheels again, whose layers the registry has."""
    from tests.engines.support import shared_engine
    from training_imgtool.core.progress import silent
    from training_imgtool.direct.registry.stored_stages import tag_of_stage
    from training_imgtool.engines.docker.engine import remove_image
    from training_imgtool.pipeline.engine.engines import pull_parents
    from training_imgtool.pipeline.request import BuildOptions, BuildRun

    image = toy.inputs.images[0]
    key = image.keys["packages"]
    repository = parse_repository(f"{toy.place}/stages/toy")
    images.derive(toy.registries, toy.good, [], None, tag_of_stage(repository, "packages", key))
    run = BuildRun(inputs=toy.inputs, options=BuildOptions(), settings=from_environment(toy.env), progress=silent)
    with shared_engine(tmp_path) as engine:
        remove_image(engine.api, f"imgtool/stage:{key}")  # what a killed run of this test left
        assert engine.image_id(key) is None
        pull_parents(run, (image,), engine, toy.registries, repository)
        assert engine.image_id(key) is not None
        remove_image(engine.api, f"imgtool/stage:{key}")


@pytest.mark.long
@pytest.mark.engine
def test_an_interrupted_run_leaves_no_container(toy: Toy, services_env: dict[str, str]) -> None:
    import docker

    from training_imgtool.engines.docker.probe import UNTIL

    source: Layer = {"app/trainer/task.py": b"import time\ntime.sleep(600)\n"}
    env = {**services_env, **toy.faulty("sleeps", [source], None)}
    program = str(Path(sys.executable).parent / "imgtool")
    command = [program, "verify", "--engine", "docker", "--locked", str(toy.folder)]
    client = docker.from_env()

    def probes() -> set[str]:
        containers = client.containers.list(all=True, filters={"label": UNTIL}, ignore_removed=True)
        return {str(probe.id) for probe in containers if env["IMGTOOL_REGISTRY"] in probe.attrs["Config"]["Image"]}

    try:
        before = probes()
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            for line in running.stderr:
                if "importing tensorflow" in line:
                    break
            deadline = time.monotonic() + 30
            while not probes() - before and time.monotonic() < deadline:
                time.sleep(0.05)
            assert probes() - before
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 130
        assert probes() <= before
    finally:
        client.close()


@pytest.mark.long
@pytest.mark.engine
def test_an_image_that_the_machine_cannot_run_is_read_instead(toy: Toy, imgtool: Run) -> None:
    """As an image for another processor: the program in its place is none for this one, and none of the base."""
    other: Layer = {"usr/local/bin/python3.11": b"\x7fELF not for here", "usr/bin/python3.11": b"\x7fELF nor this"}
    image = toy.faulty("arm", [other], None)
    done = imgtool("verify", "--engine", "docker", "--locked", toy.folder, env=image, check=False)
    assert done.returncode == 10
    assert "does not run linux/amd64" in done.stderr
    assert done.stderr.count("Error: ") == 1
    assert (
        "Error: master: base: found /usr/bin/python3.11 of layer 8 is put there by no instruction, /usr/local/"
        in done.stderr
    )
    rows = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "not run" in rows["tensorflow"]
    assert "compute" not in rows


@pytest.mark.long
def test_an_image_that_cannot_be_made_again_is_not_proven(
    toy: Toy,
    services_env: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither sound nor tampered: this machine has no wheels and no index; `verify.ignore` accepts it."""
    env = {"IMGTOOL_CACHE": str(tmp_path / "cache"), "UV_INDEX_URL": "http://127.0.0.1:9/simple"}
    for name, value in {**services_env, **toy.env, **env}.items():
        monkeypatch.setenv(name, value)
    arguments = ["verify", "--engine", "direct", "--locked", str(toy.folder)]
    assert app.run(arguments) == 10
    said = capsys.readouterr()
    assert "Error: master: wheels: not proven: /opt/venv (this machine cannot make it again: " in said.err
    assert "NOT PROVEN" in said.out
    assert app.run([*arguments, "--json"]) == 10
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["mismatches"], len(document["unproven"])) == (False, [], 1)
    finding = Finding(check="wheels", role=Role.MASTER, status=Status.UNPROVEN, found="/opt/venv", expected="no wheel")
    ignored = apply_ignores(finding, (Ignore(check="wheels", match=None, reason="known"),))
    assert (ignored.status, ignored.expected) == (Status.WARNING, "ignored: known")
