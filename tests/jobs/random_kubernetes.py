"""Random specs for the Kubernetes targets: each value is strange with a small chance."""

from __future__ import annotations

import random
from typing import Any

from training_imgtool.spec.job import Scheduling, Volume
from training_imgtool.spec.model import Role, RoleSpec, Toleration

KEYS = ["team", "a/b", "-bad", "x" * 64, "a..b/c", "UPPER", "a b", "e" * 253 + "/x", "e" * 254 + "/x", "a_b", "1"]
VALUES = ["", "v", "x" * 63, "x" * 64, "-a", "a-", "A_b.c", "a b", "é"]
NAMES = ["a", "a-", "A", "a.b", "-a", "1a", "a_b", "x" * 40, "x" * 63, "x" * 64]
VARIABLES = ["A", "_b1", "TF_TASK_INDEX", "x" * 300]
NUMBERS = [0, 1, 2**31 - 1, 2**31, 10**10]
QUANTITIES = ["1", "500m", "0.5", "16Gi", "1e3", "1E", "-1", "x", "1 Gi"]

VOLUMES = [
    Volume(mount="/results", claim="data"),
    Volume(mount="/results", claim="Bad_Name"),
    Volume(mount="/a:b", claim="data"),
    Volume(mount="/results", nfs_server="nas", nfs_path="/share"),
    Volume(mount="/results", nfs_server="nas", nfs_path="share"),
    Volume(mount="/results", nfs_server="nas", nfs_path="/a/../b"),
    Volume(mount="results", claim="data"),
]


def random_spec(chance: random.Random, *, most: int = 1000) -> tuple[dict[Role, RoleSpec], dict[str, Any]]:
    """Roles and a job, each value strange with a small chance."""

    def strange() -> bool:
        return chance.random() < 0.08

    def role(of: Role) -> RoleSpec:
        more: dict[str, Any] = {} if of is Role.MASTER else {"count": chance.choice([0, 1, 2, 10, most])}
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
        "volume": chance.choice(VOLUMES),
    }
    return roles, {key: value for key, value in choices.items() if strange()}
