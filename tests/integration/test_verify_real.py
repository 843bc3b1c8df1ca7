"""`imgtool verify` on real TensorFlow: images/mnist, and a GPU image on a stand-in nvidia/cuda base."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.conftest import CHECKOUT, MNIST, Mnist, Run
from tests.integration.test_verify_tampered import CASES
from tests.sampling import campaign
from tests.servers.registry_process import list_tags
from tests.verify import images
from tests.verify.images import Change, Layer, inputs_of
from training_imgtool.core.reference import Digest, Repository, parse_reference, parse_repository
from training_imgtool.core.settings import from_environment
from training_imgtool.pipeline.inputs import Inputs
from training_imgtool.registry.connect import Registries

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.network]

CUDA_TAG = "12.2.2-cudnn8-runtime-ubuntu22.04"
LIB = "usr/lib/x86_64-linux-gnu"
FORGED = sorted(name for name in CASES if name.startswith("forged"))
TAMPERED = sorted({*FORGED, *sorted(CASES)[::8]})


@dataclass(frozen=True)
class Real:
    """A spec whose image was built for real."""

    folder: Path
    inputs: Inputs
    good: Digest
    registries: Registries
    place: str
    env: dict[str, str]

    def faulty(self, name: str, layers: Sequence[Layer | bytes], change: Change | None = None) -> dict[str, str]:
        """The environment in which the good image's tag names one with further layers, and with its config changed."""
        image = self.inputs.images[0]
        assert image.tag is not None
        repository = parse_repository(f"{self.place}/{name}/{self.inputs.plan.name}")
        images.derive(self.registries, self.good, layers, change, repository.tag(image.tag.name))
        return {"IMGTOOL_REGISTRY": f"{self.place}/{name}"}


def _real(
    folder: Path, reference: str, place: str, env: dict[str, str], services_env: dict[str, str]
) -> Iterator[Real]:
    inputs, good = inputs_of(folder, from_environment({**services_env, **env})), parse_reference(reference)
    assert isinstance(good, Digest)
    with Registries(from_environment(services_env), keep_tokens=False) as registries:
        yield Real(folder, inputs, good, registries, place, env)


@pytest.fixture(scope="module")
def cpu(services_env: dict[str, str], mnist: Mnist) -> Iterator[Real]:
    """images/mnist, on the base that is here."""
    yield from _real(MNIST, mnist.images["master"], mnist.env["IMGTOOL_REGISTRY"], mnist.env, services_env)


@pytest.fixture(scope="module")
def gpu(
    registry_address: str, services_env: dict[str, str], imgtool: Run, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Real]:
    """images/mnist/gpu.yaml with a master only: the other roles' base is another image."""
    if CUDA_TAG not in list_tags(registry_address, "nvidia/cuda"):
        pytest.skip(f"no nvidia/cuda:{CUDA_TAG} in {registry_address} (scripts/services up cuda)")
    folder = tmp_path_factory.mktemp("real") / "mnist-gpu"
    shutil.copytree(CHECKOUT / "images/mnist", folder, ignore=shutil.ignore_patterns("__pycache__", "*.lock"))
    lines = (folder / "gpu.yaml").read_text().splitlines()
    master = [line for line in lines if not line.startswith(("  worker:", "  ps:"))]
    (folder / "image.yaml").write_text("\n".join(master) + "\n")
    place = f"{registry_address}/test/verify-gpu"  # kept from run to run: two gigabytes, and a minute or three
    env = {"IMGTOOL_REGISTRY": f"{place}/good"}
    built = imgtool("build", "--push", folder, env=env, timeout=1500).stdout
    yield from _real(folder, built.split()[1], place, env, services_env)


def _rows(stdout: str) -> dict[str, str]:
    return {line.split("  ")[0]: line for line in stdout.splitlines() if "  " in line and not line.startswith(" ")}


def _errors(stderr: str) -> list[str]:
    return [line.removeprefix("Error: ") for line in stderr.splitlines() if line.startswith("Error: ")]


def check_passes(imgtool: Run, folder: Path, env: dict[str, str], way: str) -> None:
    """Verifies images of images/mnist."""
    done = imgtool("verify", "--engine", way, folder, env=env)
    rows = _rows(done.stdout)
    assert "MISMATCH" not in done.stdout
    assert "warning" not in done.stdout
    assert "  all   ok" in rows["wheels"].replace("     ", "   ")
    assert "2.15.1" in rows["tensorflow"]


@pytest.mark.long
def test_mnist_passes_seen_from_inside(cpu: Real, imgtool: Run) -> None:
    """`test_main_job` has it without an engine."""
    check_passes(imgtool, cpu.folder, cpu.env, "docker")


@pytest.mark.long
@pytest.mark.parametrize("way", ["docker", "direct"])
@pytest.mark.parametrize("name", campaign(TAMPERED, (FORGED[0], TAMPERED[0])))
def test_a_tampered_mnist_ends_with_10(cpu: Real, imgtool: Run, name: str, way: str) -> None:
    """Every kind is tried on a toy; a campaign has those that forge a RECORD, and every eighth of the others."""
    layers, change, _ = CASES[name]
    arguments = ("verify", "--engine", way, "--locked", "--role", "master", cpu.folder)
    done = imgtool(*arguments, env=cpu.faulty(f"tampered-{name}", layers, change), check=False)
    assert done.returncode == 10, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_the_gpu_image_passes_seen_from_inside(gpu: Real, imgtool: Run) -> None:
    done = imgtool("verify", "--engine", "docker", gpu.folder, env=gpu.env)
    rows = _rows(done.stdout)
    assert "MISMATCH" not in done.stdout
    assert "7 open" in rows["libraries"]
    assert " 12.2 (12.2.2)" in rows["cuda"]
    assert " 8.9.6 (8.9.6.50)" in rows["cudnn"]
    assert "for CUDA 12.2, cuDNN 8" in rows["tensorflow build"]
    assert "ptxas" in rows["xla"]
    assert "no wheel has it" in rows["cuda once"]
    assert "not looked at" in rows["gpu"] or "visible" in rows["gpu"]


@pytest.mark.long
def test_the_gpu_image_passes_without_an_engine_and_says_what_was_not_seen(gpu: Real, imgtool: Run) -> None:
    done = imgtool("verify", "--engine", "direct", gpu.folder, env=gpu.env)
    rows = _rows(done.stdout)
    assert "MISMATCH" not in done.stdout
    assert "not looked at" in rows["libraries"]
    assert "by the base's CUDA_VERSION" in rows["cuda"]
    assert "by the base's NV_CUDNN_VERSION" in rows["cudnn"]


NO_CUDNN: Layer = {f"{LIB}/libcudnn.so.8": None, f"{LIB}/libcudnn.so.8.9.6": None}
TWICE: Layer = {"opt/venv/lib/python3.10/site-packages/nvidia/cudnn/lib/libcudnn.so.8": b"\x7fELF"}


@pytest.mark.parametrize("way", campaign(["docker", "direct"], ["docker"]))
def test_a_missing_cudnn(gpu: Real, imgtool: Run, way: str) -> None:
    done = imgtool("verify", "--engine", way, gpu.folder, env=gpu.faulty("no-cudnn", [NO_CUDNN]), check=False)
    assert done.returncode == 10
    assert any(line.startswith("master: libraries: found libcudnn.so.8 ") for line in _errors(done.stderr))


@pytest.mark.parametrize("way", campaign(["docker", "direct"], ["direct"]))
def test_cuda_twice(gpu: Real, imgtool: Run, way: str) -> None:
    done = imgtool("verify", "--engine", way, gpu.folder, env=gpu.faulty("twice", [TWICE]), check=False)
    assert done.returncode == 10
    lines = _errors(done.stderr)
    assert any(line.startswith("master: cuda once: found libcudnn in ") for line in lines)
    assert any(line.startswith("master: wheels: found ") and line.count("belongs to no wheel") == 1 for line in lines)


@pytest.mark.long
def test_a_wrong_python_and_a_wrong_base(gpu: Real, cpu: Real, imgtool: Run) -> None:
    """The GPU image under the CPU image's tag."""
    image = cpu.inputs.images[0]
    assert image.tag is not None
    place = f"{cpu.place}/swapped"
    target = Repository(image.tag.repository.registry, parse_repository(f"{place}/mnist").path)
    images.derive(gpu.registries, gpu.good, [], None, target.tag(image.tag.name))
    arguments = ("verify", "--engine", "docker", "--role", "master", cpu.folder)
    done = imgtool(*arguments, env={"IMGTOOL_REGISTRY": place}, check=False)
    assert done.returncode == 10
    lines = _errors(done.stderr)
    assert "master: python: found pyvenv.cfg says 3.10; expected 3.11" in lines
    assert any(line.startswith("master: base: found 0 of the base's") for line in lines)
    assert any(line.startswith("master: tensorflow: found no tensorflow-cpu") for line in lines)
