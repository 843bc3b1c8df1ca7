"""SkyPilot's own parser reads the tasks, and TensorFlow's resolver for Slurm sees the cluster of the launcher.

Run by `make long`, where `scripts/services up skypilot tensorflow` has installed the packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.random_arguments import asked
from tests.jobs.shell import Shell
from tests.jobs.specs import CASES, STRANGE, images, spec
from tests.jobs.test_launcher import TELL, script, slurm
from tests.servers.packages import python_with
from training_imgtool.jobs import job_data
from training_imgtool.jobs.text import dump
from training_imgtool.model.spec import Role, RoleSpec
from training_imgtool.model.targets import Target

pytestmark = pytest.mark.long
W = Role.WORKER
READ = """
import json, sys, sky
for text in json.load(sys.stdin):
    task = sky.Task.from_yaml_str(text)
    print("task", json.dumps({**task.to_yaml_config(), "run": task.run, "envs": dict(task.envs)}))
"""
# `slurm` starts job 40007; a job's port is 12000 plus its number modulo 20000.
RESOLVE = """
import json, sys, tensorflow as tf
jobs = json.loads(sys.argv[1])
resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(jobs=jobs, port_base=12007, auto_set_gpu=False)
print(json.dumps([resolver.cluster_spec().as_dict(), resolver.get_task_info()]))
"""


def read(texts: list[str]) -> list[Any]:
    """Each task as SkyPilot's parser has it."""
    python = python_with("skypilot")
    done = subprocess.run([python, "-c", READ], input=json.dumps(texts), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line.removeprefix("task ")) for line in done.stdout.splitlines() if line.startswith("task ")]


def seen(task: Any, rank: int, addresses: list[str]) -> Any:
    """TF_CONFIG and arguments of the trainer on one node of a task that SkyPilot has parsed."""
    nodes = {"SKYPILOT_NODE_IPS": "\n".join(addresses), "SKYPILOT_NODE_RANK": str(rank)}
    env = {**os.environ, **task["envs"], **nodes}
    done = subprocess.run(["bash", "-c", script(task["run"])], env=env, capture_output=True, text=True, check=True)
    config, _, arguments = json.loads(done.stdout)
    return json.loads(config), arguments


def test_three_nodes_of_skypilots_own_example() -> None:
    """The TF_CONFIG of examples/resnet_distributed_tf_app.py (`run_fn`), but for its port, which is 8008."""
    roles = {W: RoleSpec(count=3, cpus="8", memory="32Gi", command=(sys.executable, "-c", TELL))}
    of = spec(roles, args=STRANGE, region=None)
    (task,) = read([dump(job_data(of, images(of), Target.SKYPILOT))])
    assert (task["num_nodes"], task["resources"]["memory"]) == (3, "32")
    assert f"docker:{images(of)[W]}" in json.dumps(task)
    addresses = ["10.0.0.4", "10.0.0.2", "10.0.0.9"]
    for rank in range(3):
        config, arguments = seen(task, rank, addresses)
        example = {
            "cluster": {"worker": [f"{address}:2222" for address in addresses]},
            "task": {"type": "worker", "index": rank},
        }
        assert {key: config[key] for key in example} == example
        assert set(config) - set(example) == {"environment"}
        assert arguments == list(STRANGE)


def test_skypilot_takes_every_task_of_the_table() -> None:
    cases = [case for case in CASES if Target.SKYPILOT in case.targets]
    texts = [dump(job_data(case.spec, images(case.spec), Target.SKYPILOT, case.job_options())) for case in cases]
    assert len(read(texts)) == len(cases)


def test_skypilot_keeps_every_argument(tmp_path: Path) -> None:
    lists = list(asked(31, 200, Target.SKYPILOT))
    tasks = read([dump(job_data(wanted.spec, images(wanted.spec), Target.SKYPILOT)) for wanted in lists])
    shell = Shell(tmp_path)
    for task, wanted in zip(tasks, lists, strict=True):
        (call,) = shell.run(script(task["run"]).replace(sys.executable, "python"))
        assert {Role.MASTER: call[call.index("trainer.task") + 1 :]} == wanted.arguments


@pytest.mark.parametrize(
    "roles", [{"worker": 3}, {"chief": 1, "worker": 2}, {"chief": 1, "worker": 1, "ps": 2}], ids=str
)
def test_tensorflows_slurm_resolver_sees_the_same_cluster(roles: dict[str, int], tmp_path: Path) -> None:
    python, count = python_with("tensorflow"), sum(roles.values())
    command = (sys.executable, "-c", TELL)
    of_roles = {
        Role("master" if name == "chief" else name): RoleSpec(count=number, command=command)
        for name, number in roles.items()
    }
    launched = slurm(spec(of_roles, region=None), tmp_path, [f"node0{node + 1}" for node in range(count)])
    assert len(launched) == count
    for rank in range(count):
        step = {"NODELIST": f"node[01-0{count}]", "TASKS_PER_NODE": f"1(x{count})", "NUM_TASKS": str(count)}
        variables = {f"SLURM_STEP_{name}": value for name, value in step.items()}
        env = {**os.environ, **variables, "SLURM_PROCID": str(rank), "CUDA_VISIBLE_DEVICES": ""}
        resolve = [python, "-c", RESOLVE, json.dumps(roles)]
        done = subprocess.run(resolve, env=env, capture_output=True, text=True, check=True)
        cluster, (kind, index) = json.loads(done.stdout.splitlines()[-1])
        config = json.loads(launched[rank][0])
        assert (config["cluster"], config["task"]) == (cluster, {"type": kind, "index": index})
