"""A project for each test, and a registry of its own for those that need one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.faults.base import put_base
from tests.faults.project import IMGTOOL, Project
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry


@pytest.fixture(scope="session", autouse=True)
def _the_command_of_this_checkout() -> None:
    """The command may come from another checkout, whose faults would be looked for in vain."""
    interpreter = IMGTOOL.read_text().partition("\n")[0].removeprefix("#!")
    program = "import training_imgtool.cli.main as command; print(command.__file__)"
    done = subprocess.run([interpreter, "-c", program], cwd="/", capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(CHECKOUT), f"{IMGTOOL} runs {done.stdout}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(scope="session")
def registry_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A docker-registry that holds the base."""
    with run_registry(tmp_path_factory.mktemp("registry")) as registry:
        put_base(registry.host)
        yield registry.host


@pytest.fixture
def proxy(registry_host: str) -> Iterator[FaultProxy]:
    """What stands between a project and the registry."""
    with FaultProxy(registry_host) as running:
        yield running


@pytest.fixture
def pushing(project: Project, proxy: FaultProxy) -> Project:
    """A project whose images go through the proxy into a repository of its own."""
    project.env["IMGTOOL_REGISTRY"] = f"{proxy.host}/t{project.mark[:12]}"
    project.env["IMGTOOL_MIRRORS"] = f"docker.io={proxy.host}"
    project.login(proxy.host)
    return project
