"""Large files beside the code: a changed line sends kilobytes, also from a machine that has nothing but a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, Wheels, check_whole, make_base, noise
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry

pytestmark = pytest.mark.registry
MB = 1 << 20


def _large_file(path: Path, size: int) -> None:
    block = noise(MB, path.name)
    with path.open("wb") as stream:
        for _ in range(size // MB):
            stream.write(block)


@pytest.mark.parametrize("size", [6 * MB, pytest.param(300 * MB, marks=pytest.mark.long)], ids=["6 MB", "300 MB"])
def test_a_changed_line_beside_a_large_file(size: int, tmp_path: Path) -> None:
    with run_registry(tmp_path / "registry") as registry, FaultProxy(registry.host) as proxy:
        make_base().put(registry.host)
        project = Project(tmp_path / "project", Wheels(tmp_path / "wheels"), make_base())
        _large_file(project.folder / "trainer/data.bin", size)
        first, second = (_machine(tmp_path / name, project, proxy) for name in ("first", "second"))
        _push(first, project)
        assert proxy.bytes_up() > size
        for number, machine in enumerate((first, second)):
            project.write("trainer/task.py", f"print({number})\n")
            proxy.clear()
            references = _push(machine, project)
            assert proxy.bytes_up() < MB / 4
            check_whole(proxy.host, references)


def _machine(folder: Path, project: Project, proxy: FaultProxy) -> Machine:
    machine = Machine(folder, f"{proxy.host}/large", proxy.host)
    machine.give(project.wheels)
    return machine


def _push(machine: Machine, project: Project) -> list[str]:
    out, _ = machine.run("push", "--locked", "--role", "worker", cwd=project.folder, timeout=1200)
    return [line.split(" ", 1)[1] for line in out.splitlines()]
