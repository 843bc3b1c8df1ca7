"""How deep a push is in its own functions when it puts and reads manifests, by `scripts/trace`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project
from tests.servers.fault_proxy import FaultProxy

pytestmark = pytest.mark.registry
TRACE = Path(__file__).resolve().parents[2] / "scripts" / "trace"


@pytest.mark.parametrize("known", [True, False], ids=["same machine", "a machine that has seen nothing"])
def test_one_role_after_a_changed_line(tmp_path: Path, proxy: FaultProxy, project: Project, *, known: bool) -> None:
    place = f"{proxy.host}/{tmp_path.name.replace('_', '-').lower()}"
    first, other = (Machine(tmp_path / name, place, proxy.host) for name in ("one", "two"))
    first.give(project.wheels)
    first.push(project)
    project.write("trainer/task.py", "print('training more')\n")
    machine = first if known else other
    machine.command = [sys.executable, str(TRACE), "--json", str(tmp_path / "trace.json")]
    machine.run("push", "--locked", "--role", "worker", cwd=project.folder)
    rows = json.loads((tmp_path / "trace.json").read_text())
    (put,) = (
        stack[stack.index("cli/push.push") :]
        for method, name, stack, _ in rows
        if method == "PUT" and ":worker-" in name
    )
    assert put[-1] == "registry/client.Registry.put_manifest"
    assert len(put) <= 12, "\n".join(put)
    reads = {name: deepest for method, name, _, deepest in rows if method == "GET"}
    assert [name for name in reads if ":packages-" in name] if not known else not reads
    for deepest in reads.values():
        in_thread = deepest[deepest.index("core/threads.run_all") + 1 :]  # the worker's own
        assert len(in_thread) <= 15, "\n".join(in_thread)
