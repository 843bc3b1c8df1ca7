"""Several specs and variants in one `imgtool push`: shared stages once, one summary, the gravest exit code."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, blobs_sent, check_whole, make_base
from tests.measure import wait_with_peak
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry

pytestmark = pytest.mark.registry
USERS = ("1000", "1001", "1002")


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    with run_registry(tmp_path / "registry") as registry:
        make_base().put(registry.host)
        with FaultProxy(registry.host) as running:
            yield running


@pytest.fixture
def machine(tmp_path: Path, proxy: FaultProxy, project: Project) -> Machine:
    machine = Machine(tmp_path / "machine", f"{proxy.host}/many", proxy.host)
    machine.give(project.wheels)
    return machine


@pytest.mark.long
def test_variants_share_their_stages(machine: Machine, project: Project, proxy: FaultProxy) -> None:
    arguments = ("push", "--locked", "--set", f"user={','.join(USERS)}")
    out, err = machine.run(*arguments, cwd=project.folder)
    rows = [line.rsplit(" ", 2) for line in out.splitlines()]
    assert [name for name, _, _ in rows] == [f". user={user}" for user in USERS for _ in range(3)]
    assert len({reference for _, _, reference in rows}) == 9
    check_whole(proxy.host, (reference for _, _, reference in rows))
    sent = blobs_sent(proxy.log)
    assert len(sent) == len(set(sent)), "a stage was made twice"
    assert err.count("wheels become layers") == 1
    assert "3 of 3 specs are done" in err
    proxy.clear()
    again, _ = machine.run(*arguments, cwd=project.folder)
    assert again == out
    assert Counter(proxy.methods()) == {"HEAD": 9, "GET": 9}


@pytest.mark.long
@pytest.mark.parametrize("variants", [5, 100, pytest.param(1000, marks=pytest.mark.campaign)])
def test_what_a_variant_costs(machine: Machine, project: Project, proxy: FaultProxy, variants: int) -> None:
    """Requests and bytes per variant, attestations included, and memory that does not grow with their number."""
    users = ",".join(str(1000 + number) for number in range(variants))
    arguments = ("push", "--locked", "--role", "worker", "--set", f"user={users}", "--progress", "quiet")
    machine.run(*arguments, cwd=project.folder, timeout=1800)
    proxy.clear()
    proxy.connections = 0
    machine.run(*arguments, cwd=project.folder, timeout=1800)
    assert Counter(proxy.methods()) == {"HEAD": variants, "GET": variants}
    assert proxy.connections <= 8
    project.write("trainer/task.py", "print('training more')\n")
    proxy.clear()
    process = machine.start(*arguments, cwd=project.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = wait_with_peak(process)
    assert process.returncode == 0
    assert (
        len(proxy.log) <= 10 * variants + 9
    )  # 4 for the image, 6 for its attestations; the code, the bill and shared layers once
    assert proxy.bytes_up() < (64 << 10) * variants
    assert 20_000 < peak < 100_000  # kB


def test_a_spec_that_fails_stops_no_other(machine: Machine, project: Project, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(project.folder, broken)
    (broken / "image.yaml").write_text("name: broken\n")
    out, err = machine.run("push", "--locked", "--json", project.folder, broken, cwd=tmp_path, code=3)
    document = json.loads(out)
    assert not document["ok"]
    good, bad = document["specs"]
    assert (len(good["images"]), good["error"]) == (3, None)
    assert (bad["images"], bad["error"]["code"]) == ([], 3)
    assert f"Error: {broken}: " in err
    assert "1 of 2 specs are done" in err


@pytest.mark.long
def test_a_secret_is_for_the_specs_that_mount_it(machine: Machine, project: Project, tmp_path: Path) -> None:
    mounting = tmp_path / "mounting"
    shutil.copytree(project.folder, mounting)
    step = "RUN --mount=type=secret,id=token true"
    (mounting / "own.j2").write_text(
        f'{{% extends "base.Dockerfile.j2" %}}\n{{% block system_extra %}}\n{step}\n{{% endblock %}}\n'
    )
    arguments = ("push", "--set", "template=own.j2", "--secret", "id=token,env=TOKEN", "--secret", "id=tokn,env=TOKEN")
    (project.folder / "own.j2").write_text('{% extends "base.Dockerfile.j2" %}\n')
    machine.env |= {"TOKEN": "0123456", "PATH": "/usr/bin:/bin"}  # without buildx
    out, err = machine.run(*arguments, "--json", project.folder, mounting, cwd=tmp_path, code=3)
    assert [row["error"] and row["error"]["code"] for row in json.loads(out)["specs"]] == [None, 3]
    assert "RUN --mount=type=secret needs BuildKit" in err
    assert "secret tokn: no spec uses it" in err
    assert "secret token" not in err


def test_a_tag_for_two_specs_is_refused_before_anything_is_sent(
    machine: Machine, project: Project, proxy: FaultProxy
) -> None:
    arguments = ("push", "--locked", "--role", "worker", "--tag", "v1")
    _, err = machine.run(*arguments, "--set", "user=1000,1001", cwd=project.folder, code=2)
    name = f"{proxy.host}/many/demo:v1"
    assert f"--tag v1: . user=1000 and . user=1001 would both push {name}" in err
    assert not proxy.log
    out, _ = machine.run(*arguments, "--set", "name=one,two", cwd=project.folder)
    assert [line.split()[1] for line in out.splitlines()] == ["name=one", "name=two"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "user"), "expected KEY=VALUE"),
        (("--set", "user=1,,2"), "expected KEY=VALUE"),
        (("--set", "user=1", "--set", "user=2"), "--set gives user twice"),
    ],
)
def test_values_that_are_none(machine: Machine, project: Project, arguments: tuple[str, ...], message: str) -> None:
    _, err = machine.run("push", *arguments, cwd=project.folder, code=2)
    assert message in err


def test_a_value_that_the_spec_does_not_take_is_refused_at_its_place(machine: Machine, project: Project) -> None:
    _, err = machine.run("push", "--set", "tensorflow=2.15.9", cwd=project.folder, code=3)
    assert "image.yaml:2:13: tensorflow" in err
    _, err = machine.run("push", "--set", "roles.worker.colour=red", cwd=project.folder, code=2)
    assert "colour" in err
