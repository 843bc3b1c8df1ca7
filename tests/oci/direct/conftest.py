"""A registry for the tests that push, and a build context for those that build."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oci.direct.builds import Maker
from tests.oci.direct.registry import Bench
from tests.oci.registry.support import clients, machine
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry
from training_imgtool.base.context.context import Context, scan
from training_imgtool.base.reference import parse_repository


@pytest.fixture(scope="session")
def direct_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_registry(tmp_path_factory.mktemp("direct-registry")) as running:
        yield running.host


@pytest.fixture
def pushing(direct_registry: str, tmp_path: Path) -> Iterator[Bench]:
    with FaultProxy(direct_registry) as proxy, clients(machine(tmp_path)) as registries:
        place = f"{proxy.host}/{tmp_path.parent.name}-{tmp_path.name}/demo".lower().replace("_", "-").replace("--", "-")
        yield Bench(proxy, tmp_path, registries, parse_repository(place), [])


@pytest.fixture
def context(tmp_path: Path) -> Context:
    folder = tmp_path / "spec"
    (folder / "code" / "sub").mkdir(parents=True)
    (folder / "code" / "a.py").write_text("print(1)\n")
    (folder / "code" / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "code" / "sub" / "run.sh").chmod(0o755)
    (folder / "b.txt").write_text("b")
    subprocess.run(["tar", "-C", folder, "-cf", folder / "packed.tar", "b.txt"], check=True)
    return scan(folder)


@pytest.fixture
def make(context: Context, tmp_path: Path) -> Maker:
    return Maker(context, tmp_path)
