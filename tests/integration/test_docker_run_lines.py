"""The `docker run` lines of the target tf-config, on one machine: how each replica's end looks to who started it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.integration.test_submit_programs import small_image
from tests.jobs.specs import spec
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.jobs import JobOptions, job_data
from training_imgtool.jobs.model import Format
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.spec.model import Role, RoleSpec
from training_imgtool.spec.targets import Target

pytestmark = [pytest.mark.long, pytest.mark.engine]
HOSTS = parse_hosts("master=127.0.0.1:2222,worker=127.0.0.1:2223")
STAYS = "import time; time.sleep(120)"


def lines(image: str, programs: dict[Role, str]) -> dict[str, str]:
    """The command line of each machine, by its name."""
    roles = {role: RoleSpec(command=("python3", "-c", program)) for role, program in programs.items()}
    of = spec(roles, region=None, id=f"ends-{time.time_ns()}")
    reference = parse_reference(image)
    assert isinstance(reference, Digest)
    made = job_data(of, dict.fromkeys(programs, reference), Target.TF_CONFIG, JobOptions(hosts=HOSTS))
    write = made.texts[Format.DOCKER_RUN]
    return {f"{role}-0": write(f"{role}-0") for role in programs}


class Machines:
    """The machines' shells; what still runs is stopped at the end."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._names: list[str] = []

    def start(self, commands: dict[str, str]) -> None:
        for name, text in commands.items():
            self.running[name] = subprocess.Popen(["bash", "-c", text])
            self._names.append(text.split("--name ")[1].split()[0])

    def close(self) -> None:
        subprocess.run(["docker", "kill", *self._names], capture_output=True, check=False)
        for process in self.running.values():
            process.wait(30)


@pytest.fixture
def machines() -> Iterator[Machines]:
    made = Machines()
    yield made
    made.close()


@pytest.mark.parametrize("ends", [Role.MASTER, Role.WORKER])
@pytest.mark.parametrize("code", [0, 7])
def test_a_replicas_end_is_its_own(machines: Machines, ends: Role, code: int) -> None:
    other = next(role for role in (Role.MASTER, Role.WORKER) if role is not ends)
    machines.start(lines(small_image(), {ends: f"raise SystemExit({code})", other: STAYS}))
    assert machines.running[f"{ends}-0"].wait(60) == code
    with pytest.raises(subprocess.TimeoutExpired):
        machines.running[f"{other}-0"].wait(3)


def test_what_cannot_start_ends_with_125(machines: Machines) -> None:
    missing = f"{small_image().partition('@')[0]}@sha256:{'0' * 64}"
    machines.start(lines(missing, {Role.MASTER: STAYS, Role.WORKER: STAYS}))
    assert machines.running["master-0"].wait(60) == 125
