"""The trainer of `imgtool init` with real TensorFlow: as a master and a worker, with Keras 2 and 3."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from training_imgtool.app.init import write_starter
from training_imgtool.model.spec import Accelerator

pytestmark = [pytest.mark.network, pytest.mark.slow]


KERAS_2, KERAS_3 = "2.15.1", "2.19.1"


@pytest.fixture(scope="module")
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the TensorFlow release."""
    environment = tmp_path_factory.mktemp("tensorflow")
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    executable = environment / "bin/python"
    packages = [f"tensorflow-cpu=={request.param}", "setuptools<81", *(["numpy<2"] if request.param < "2.16" else [])]
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(executable), *packages], check=True, timeout=600)
    return executable


def start(python: Path, folder: Path, job_dir: Path, tf_config: object) -> subprocess.Popen[str]:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_CONFIG": json.dumps(tf_config)}
    command = [str(python), "-m", "trainer.task", "--epochs=5", f"--job-dir={job_dir}"]
    return subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def accuracy(run: subprocess.Popen[str]) -> float:
    said, _ = run.communicate(timeout=240)
    assert run.returncode == 0, said[-2000:]
    return float(said.rpartition("accuracy ")[2].partition(",")[0])


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listening.getsockname()[1]) for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports


@pytest.mark.long
@pytest.mark.parametrize("python", [KERAS_2, KERAS_3], indirect=True)
def test_a_master_and_a_worker_learn_the_same_model(python: Path, tmp_path: Path) -> None:
    write_starter(tmp_path, name="m", release="2.15.1", accelerator=Accelerator.CPU)
    first, second = free_ports(2)
    cluster = {"master": [f"127.0.0.1:{first}"], "worker": [f"127.0.0.1:{second}"]}
    runs = [
        start(python, tmp_path, tmp_path / "job", {"cluster": cluster, "task": {"type": task, "index": 0}})
        for task in ("master", "worker")
    ]
    try:
        master, worker = (accuracy(run) for run in runs)
    finally:
        for run in runs:
            run.kill()
            run.communicate()
    assert master > 0.9
    assert master == worker
    assert (tmp_path / "job/model/saved_model.pb").is_file()
