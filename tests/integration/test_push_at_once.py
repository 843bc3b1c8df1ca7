"""Jobs that push one image at the same time to a registry that has nothing of it: what they send between them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.direct.wheels import as_wheel
from tests.integration.push_world import Machine, Project, Wheels, check_whole, make_base
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry

pytestmark = [pytest.mark.registry, pytest.mark.long]
RATE = 2e6  # bytes per second of a connection: one job alone needs about 20 s


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    with run_registry(tmp_path / "registry") as registry:
        make_base().put(registry.host)
        with FaultProxy(registry.host, rate=RATE) as running:
            yield running


@pytest.fixture
def project(tmp_path: Path) -> Project:
    wheels = Wheels(tmp_path / "wheels")
    for number in range(8):
        wheels.add(f"large{number}", size=(17 + number) << 20)
    for number in range(3):
        wheels.add(f"medium{number}", size=2 << 20)
    return Project(tmp_path / "project", wheels, make_base())


def _prepare(folder: Path, proxy: FaultProxy, wheels: Wheels) -> Machine:
    """A machine that has the wheels and has made the layers before: what it does is to send."""
    machine = Machine(folder, f"{proxy.host}/team", proxy.host)
    for path in (wheels.pip, *wheels.packages):
        digest = as_wheel(path).sha256
        place = machine.cache / "wheels" / digest[:2] / digest / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, place)
    return machine


@pytest.mark.parametrize("case", [(1, "one"), (6, "one"), (6, "many"), (20, "many")])
def test_jobs_send_the_image_once_between_them(
    tmp_path: Path, project: Project, proxy: FaultProxy, case: tuple[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, machines = case
    count = jobs if machines == "many" else 1
    first = _prepare(tmp_path / "first", proxy, project.wheels)
    first.run("build", "--output", f"oci:{tmp_path / 'layout'}", "--locked", cwd=project.folder)
    proxy.clear()
    workers = [Machine(tmp_path / f"machine-{number}", f"{proxy.host}/team", proxy.host) for number in range(count)]
    for worker in workers:
        shutil.copytree(first.cache, worker.cache, copy_function=os.link)
    started = [
        workers[number % count].start("push", "--locked", "--progress", "quiet", cwd=project.folder)
        for number in range(jobs)
    ]
    ended = [(process.communicate(timeout=600), process.returncode) for process in started]
    assert not {err for (_, err), code in ended if code}
    (out,) = {out for (out, _), _ in ended}
    references = [line.split()[-1] for line in out.decode().splitlines()]
    check_whole(proxy.upstream, (reference.replace(proxy.host, proxy.upstream) for reference in references))
    blobs = tmp_path / "registry/data/docker/registry/v2/blobs"
    held = sum(path.stat().st_size for path in blobs.rglob("data"))
    seconds = max(exchange.ended for exchange in proxy.log) - min(exchange.began for exchange in proxy.log)
    uploads = sum(exchange.received > 1 << 20 for exchange in proxy.log)
    said = f"{proxy.bytes_up() / 1e6:.1f} MB sent of {held / 1e6:.1f} ({proxy.bytes_up() / held:.2f} x)"
    with capsys.disabled():
        print(
            f"\n{jobs} jobs on {machines}: {said}, {uploads} large uploads, {seconds:.0f} s, {len(proxy.log)} requests"
        )
    most = 1.5 if jobs < 20 else 2.5  # so many processes on busy cores need a second between a question and a claim
    assert proxy.bytes_up() < most * held
