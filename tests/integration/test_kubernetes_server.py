"""A Kubernetes API server with the CRDs takes what imgtool writes, and refuses what lint calls an error.

Run by `make long`, where `scripts/services up kubernetes` has built the server. The operators' webhooks are not there:
their rules are in tests/jobs/test_kubernetes_names.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.jobs.fault import faulty
from tests.jobs.faults import FAULTS
from tests.jobs.specs import CASES, images, spec
from tests.servers.kubernetes import CRDS, ApiServer, api_server
from training_imgtool.core.errors import ImgtoolError
from training_imgtool.jobs import job_data
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.text import dump
from training_imgtool.spec.model import Role, RoleSpec, Scheduling, Target, Toleration

pytestmark = pytest.mark.long
TARGETS = (Target.TFJOB, Target.JOBSET)
KEYS = ["team", "a/b", "-bad", "x" * 64, "a..b/c", "UPPER", "a b", "e" * 253 + "/x", "e" * 254 + "/x", "a_b", "1"]
VALUES = ["", "v", "x" * 63, "x" * 64, "-a", "a-", "A_b.c", "a b", "é"]
NAMES = ["a", "a-", "A", "a.b", "-a", "1a", "a_b", "x" * 40, "x" * 63, "x" * 64]
VARIABLES = ["A", "a.b", "1A", "A=B", "a b", "é", "x" * 300]
NUMBERS = [0, 1, 2**31 - 1, 2**31, 10**10]
QUANTITIES = ["1", "500m", "0.5", "16Gi", "1e3", "1E", "-1", "x", "1 Gi"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


def custom_resources(text: str) -> list[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, Loader=loader) if document["kind"] in CRDS]


def test_it_takes_every_golden_file(server: ApiServer) -> None:
    for case in CASES:
        for target in {*TARGETS} & {*case.targets}:
            text = dump(job_data(case.spec, images(case.spec), target, case.job_options()))
            assert [server.create(item) for item in custom_resources(text)] == [None], (case.name, target)


def test_it_refuses_what_lint_calls_an_error_of_the_schema(server: ApiServer) -> None:
    faults = [fault for fault in FAULTS if fault.base.endswith((".tfjob", ".jobset")) and fault.schema]
    for fault in faults:
        if fault.severity is Severity.ERROR:
            (item,) = custom_resources(faulty(fault))
            assert server.create(item) is not None, fault.name


@pytest.mark.parametrize("seed", [1, 2])
def test_it_takes_what_imgtool_writes_for_random_specs(seed: int, server: ApiServer) -> None:
    chance = random.Random(seed)
    written = refused = 0
    for _ in range(250):
        roles, job = _random(chance)
        for target in TARGETS:
            try:
                of = spec(roles, region=None, target=target, **job)
                text = dump(job_data(of, images(of), target))
            except ImgtoolError:
                refused += 1
                continue
            written += 1
            assert [server.create(item) for item in custom_resources(text)] == [None], (roles, job)
    assert min(written, refused) > 50


def _random(chance: random.Random) -> tuple[dict[Role, RoleSpec], dict[str, Any]]:
    """Roles and a job, each value strange with a small chance."""

    def strange() -> bool:
        return chance.random() < 0.08

    def role(of: Role) -> RoleSpec:
        more: dict[str, Any] = {} if of is Role.MASTER else {"count": chance.choice([0, 1, 2, 10, 1000])}
        more |= {"cpus": chance.choice(QUANTITIES)} if strange() else {}
        more |= {"memory": chance.choice(QUANTITIES)} if strange() else {}
        more |= {"node_selector": {chance.choice(KEYS): chance.choice(VALUES)}} if strange() else {}
        tolerated = {
            "key": chance.choice([None, *KEYS]),
            "operator": chance.choice([None, "Exists", "Equal", "exists"]),
        }
        more |= {"tolerations": (Toleration(**tolerated),)} if strange() else {}
        return RoleSpec(**more)

    roles = {of: role(of) for of in Role if of is Role.MASTER or chance.random() < 0.4}
    times = Scheduling(restarts=chance.choice(NUMBERS), keep_finished=f"{chance.choice(NUMBERS)}s")
    choices: dict[str, Any] = {
        "id": chance.choice(NAMES),
        "namespace": chance.choice(NAMES),
        "queue": chance.choice(NAMES),
        "service_account": chance.choice(NAMES),
        "labels": {chance.choice(KEYS): chance.choice(VALUES)},
        "env": {chance.choice(VARIABLES): chance.choice(["x", "$(A)", "$$", "\n", ""])},
        "scheduling": times,
        "image_pull_secrets": (chance.choice(NAMES),),
    }
    return roles, {key: value for key, value in choices.items() if strange()}
