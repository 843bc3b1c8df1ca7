"""The example for real: built, pushed, pulled by Docker, and run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def images(imgtool: Callable[..., subprocess.CompletedProcess[str]]) -> dict[str, str]:
    """Every role's image by digest, from the registry."""
    lines = imgtool("build", "--push", "images/mnist", "--progress", "plain").stdout.splitlines()
    return dict(line.split(" ", 1) for line in lines)


def docker(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_three_roles_by_digest(images: dict[str, str]) -> None:
    assert set(images) == {"master", "worker", "ps"}
    assert len({image.partition("@")[2] for image in images.values()}) == 3


def test_the_worker_image_has_the_tensorflow_of_the_spec(images: dict[str, str]) -> None:
    program = "import tensorflow as tf, sys; print(tf.__version__, sys.version_info[:2])"
    out = docker("run", "--rm", "--network=none", "--entrypoint", "python", images["worker"], "-c", program).stdout
    assert out.split() == ["2.15.1", "(3,", "11)"]


def test_the_master_image_trains_alone_to_nine_tenths(images: dict[str, str], tmp_path: Path) -> None:
    volume = f"{tmp_path}:/job"
    out = docker("run", "--rm", "--network=none", "-v", volume, images["master"], "--job-dir=/job", "--epochs=8").stdout
    last = out.splitlines()[-1].split()
    assert last[0] == "accuracy"
    assert float(last[1]) > 0.9
    assert (tmp_path / "model/saved_model.pb").is_file()
    assert (tmp_path / "checkpoints/checkpoint").is_file()


def test_the_images_share_all_but_their_last_layers(images: dict[str, str]) -> None:
    layers = []
    for image in images.values():
        docker("pull", "--quiet", image)
        layers.append(json.loads(docker("inspect", image).stdout)[0]["RootFS"]["Layers"])
    assert layers[0][:-1] == layers[1][:-1] == layers[2][:-1]


def test_the_job_file_names_them(
    images: dict[str, str], imgtool: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    target = tmp_path / "config.yaml"
    imgtool("config", "images/mnist", "-o", target)
    text = target.read_text()
    assert all(image in text for image in images.values())
    assert "master-" not in text
