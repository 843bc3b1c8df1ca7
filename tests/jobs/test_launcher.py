"""SkyPilot and Slurm: the generated commands, run by a real shell on pretended nodes, give each its TF_CONFIG.

tests/integration/test_launcher_programs.py compares it with what SkyPilot and TensorFlow themselves say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.specs import STRANGE, images, spec
from training_imgtool.jobs import Format, job_data, launcher
from training_imgtool.jobs.text import dump
from training_imgtool.model.job import SecretRef
from training_imgtool.model.spec import INIT, ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

M, W, P, E = Role.MASTER, Role.WORKER, Role.PS, Role.EVALUATOR
TELL = (
    "import json, os, sys; "
    "print(json.dumps([os.environ.get('TF_CONFIG'), os.environ.get('CLUSTER_SPEC'), sys.argv[1:]]))"
)
WORKERS = {W: RoleSpec(count=3, command=(sys.executable, "-c", TELL))}


def script(text: str) -> str:
    """The text with this machine's Python in place of the images', and without their init."""
    return text.replace(f"{' '.join(INIT)} ", "").replace(launcher.PYTHON, sys.executable)


def skypilot(of: ImageSpec, rank: int, addresses: list[str]) -> Any:
    """What the trainer of one node sees: TF_CONFIG, CLUSTER_SPEC and its arguments."""
    (task,) = job_data(of, images(of), Target.SKYPILOT).documents
    nodes = {"SKYPILOT_NODE_IPS": "\n".join(addresses), "SKYPILOT_NODE_RANK": str(rank)}
    env = {**os.environ, **task.get("envs", {}), **nodes}
    done = subprocess.run(["bash", "-c", script(task["run"])], env=env, capture_output=True, text=True, check=True)
    return [json.loads(text) if isinstance(text, str) else text for text in json.loads(done.stdout)]


def test_three_nodes_of_skypilot() -> None:
    addresses = ["10.0.0.4", "10.0.0.2", "10.0.0.9"]
    for rank in range(3):
        config, _, arguments = skypilot(spec(WORKERS, args=STRANGE, region=None), rank, addresses)
        # as SkyPilot's own TensorFlow example has it (examples/resnet_distributed_tf_app.py), but for its port, 8008
        assert config["cluster"] == {"worker": [f"{address}:2222" for address in addresses]}
        assert config["task"] == {"type": "worker", "index": rank}
        assert arguments == list(STRANGE)


_SIZES = {"16Gi": "16", "512Mi": "0.5", "1Ti": "1024", "2G": "2", "1536M": "1.5", "3T": "3072", "1073741824": "1"}


@pytest.mark.parametrize(("memory", "gib"), _SIZES.items())
def test_memory_as_skypilot_counts_it(memory: str, gib: str) -> None:
    of = spec({M: RoleSpec(memory=memory)}, region=None)
    (task,) = job_data(of, images(of), Target.SKYPILOT).documents
    assert task["resources"]["memory"] == gib


def test_one_node_of_skypilot_has_no_cluster() -> None:
    lone = spec({M: RoleSpec(command=(sys.executable, "-c", TELL))}, region=None)
    assert skypilot(lone, 0, ["10.0.0.4"]) == [None, None, []]


def slurm(of: ImageSpec, tmp_path: Path, nodes: list[str]) -> dict[int, Any]:
    """What the trainer on each node sees, by node; `srun` and `scontrol` are stand-ins with Slurm's own variables."""
    tools, out = tmp_path / "bin", tmp_path / "out"
    for folder in (tools, out):
        folder.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\n" + "".join(f"echo {node}\n" for node in nodes))
    (tools / "srun").write_text(_SRUN.format(python=sys.executable, out=out, total=len(nodes)))
    for tool in tools.iterdir():
        tool.chmod(0o755)
    path = tmp_path / "job.sh"
    path.write_text(script(dump(job_data(of, images(of), Target.SLURM))))
    env = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[01-05]",
        "SLURM_JOB_ID": "40007",
    }
    subprocess.run(["bash", str(path)], env=env, check=True, timeout=60)
    return {int(file.name): json.loads(file.read_text()) for file in out.iterdir()}


_SRUN = """\
#!{python}
import os, subprocess, sys, time
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
program = sys.argv[1 + next(i for i, word in enumerate(sys.argv[1:]) if not word.startswith("--")) :]
first = int(options.get("relative", 0))
for task in range(int(options["ntasks"])):
    env = {{**os.environ, "SLURM_PROCID": str(task)}}
    done = subprocess.run(program, env=env, capture_output=True, check=True)
    with open(f"{out}/{{first + task}}.part", "wb") as file:
        file.write(done.stdout)
    os.rename(file.name, file.name[:-5])
while not first and len([name for name in os.listdir("{out}") if name.isdecimal()]) < {total}:
    time.sleep(0.05)  # the chief works until the others have begun, whom its end ends
"""


def test_five_nodes_of_slurm(tmp_path: Path) -> None:
    command = (sys.executable, "-c", TELL)
    roles = {role: RoleSpec(count=2 if role is W else 1, command=command) for role in Role}
    nodes = [f"node{number:02}" for number in range(1, 6)]
    seen = slurm(spec(roles, args=STRANGE, region=None), tmp_path, nodes)
    tasks = [json.loads(seen[rank][0])["task"] for rank in range(5)]
    assert [(task["type"], task["index"]) for task in tasks] == [
        ("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1), ("evaluator", 0),
    ]  # fmt: skip
    for rank in range(5):
        config, cluster, arguments = seen[rank]
        assert json.loads(config)["cluster"] == {
            "chief": ["node01:12007"], "ps": ["node02:12007"], "worker": ["node03:12007", "node04:12007"],
        }  # fmt: skip
        assert json.loads(cluster)["cluster"]["evaluator"] == ["node05:12007"]
        assert arguments == list(STRANGE)


def test_the_data_of_a_script() -> None:
    of = spec({W: RoleSpec(count=2)}, region=None)
    data = json.loads(dump(job_data(of, images(of), Target.SLURM), Format.JSON))
    assert data["options"]["nodes"] == 2
    (step,) = data["steps"]
    image = "docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:" + "b" * 64
    assert step["options"]["container-image"] == image


VALUE = "a=b c $x'\""


@pytest.mark.parametrize("place", ["env", "."])  # a file of lines, or a folder with a file per variable
def test_secrets_reach_the_program(place: str, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(f"OTHER=1\nHF_TOKEN={VALUE}\n")
    (tmp_path / "HF_TOKEN").write_text(f"{VALUE}\n")

    def run(names: str) -> subprocess.CompletedProcess[str]:
        program = (sys.executable, "-c", "import os; print(os.environ['HF_TOKEN'])")
        command = (sys.executable, "-c", launcher.SECRETS_SOURCE, place, names, *program)
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run("HF_TOKEN").stdout == f"{VALUE}\n"
    missing = run("HF_TOKEN,ABSENT")
    assert (missing.returncode, missing.stderr) == (1, f"the secret ABSENT is not in {place}\n")


@pytest.mark.parametrize(("name", "code"), [("HF_TOKEN", 0), ("ABSENT", 127)])
def test_slurms_script_reads_the_secrets(name: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(f"HF_TOKEN={VALUE}\nX_HF_TOKEN=2\n")
    job: dict[str, Any] = {"secrets": {name: SecretRef()}, "secrets_file": str(tmp_path / "env")}
    of = spec({M: RoleSpec(command=("printenv", name))}, region=None, **job)
    text = script(dump(job_data(of, images(of), Target.SLURM)))
    assert VALUE not in text
    (tmp_path / "srun").write_text('#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done; exec "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("" if code else f"{VALUE}\n", code)
