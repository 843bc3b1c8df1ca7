"""What an engine tells of an image: its config and layers' sizes, and what a container with the machine's GPUs says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import plans
from tests.verify import images
from training_imgtool.core.progress import silent
from training_imgtool.core.settings import from_environment
from training_imgtool.engines.docker.client import DockerApi
from training_imgtool.engines.docker.engine import DockerEngine
from training_imgtool.spec.model import Role
from training_imgtool.verify import inspect_container
from training_imgtool.verify.facts import Started
from training_imgtool.verify.inspect_container import read_engine_config
from training_imgtool.verify.inspect_registry import LayerReader
from training_imgtool.verify.session import VerifyRun, _ImageLocation, _run_inside


class _Api:
    """An engine that answers to each name of docker-py's with what it was given."""

    def __init__(self, **answers: Any) -> None:
        self._client = SimpleNamespace(**{name: lambda *_, said=said: said for name, said in answers.items()})

    @contextmanager
    def ask(self, doing: str) -> Iterator[Any]:
        assert doing
        yield self._client


@pytest.mark.parametrize(
    ("sizes", "layers"),
    [([3, 0, 5], [3, 5]), ([3, 0, 5], [3, 5, 0]), ([3, 4, 5], [3, 4])],
    ids=["as many", "an empty layer", "too many"],
)
def test_each_layer_of_an_engine_s_image_has_the_size_of_its_line(sizes: list[int], layers: list[int]) -> None:
    lines = [{"CreatedBy": f"line {size}", "Size": size} for size in sizes]
    details = {
        "Architecture": "amd64",
        "Os": "linux",
        "RootFS": {"Layers": [f"sha256:{n}" for n in range(len(layers))]},
    }
    api = _Api(inspect_image=details, history=lines[::-1])
    config, found = read_engine_config(cast("DockerApi", api), "sha256:1")
    assert found == [("", size) for size in layers]
    assert config["history"] == [{"created_by": f"line {size}", "empty_layer": not size} for size in sizes]


@pytest.mark.parametrize(
    ("accelerator", "runtimes", "why"),
    [
        ("gpu", {"nvidia": {}}, ""),
        ("gpu", {"runc": {}}, "the engine's machine offers no NVIDIA GPU"),
        ("cpu", {"nvidia": {}}, "the role has no GPU"),
    ],
)
def test_a_container_gets_the_gpus_that_role_and_machine_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accelerator: str, runtimes: dict[str, Any], why: str
) -> None:
    cuda = {"cuda": "12.2.2", "cudnn": "8.9.6.50"} if accelerator == "gpu" else {}
    locked = plans.locked(accelerator, wheels=(plans.wheel("tensorflow", "2.15.1"),), roles=(Role.MASTER,), **cuda)
    settings = from_environment({"HOME": str(tmp_path), "IMGTOOL_REGISTRY": "127.0.0.1:9/x"})
    inputs = images.inputs_of(images.write_spec(tmp_path / "spec", locked), settings)
    given = []

    def start(*_: Any, gpus: bool) -> Started:
        given.append(gpus)
        return Started(parts={})

    monkeypatch.setattr(inspect_container, "run", start)
    facts = _run_inside(
        VerifyRun(inputs=inputs, roles=(Role.MASTER,), engine="docker", settings=settings, progress=silent),
        inputs.images[0],
        _ImageLocation(digest=None, image_id="sha256:1"),
        cast("DockerEngine", SimpleNamespace(api=_Api(info={"Runtimes": runtimes}))),
        cast("LayerReader", None),
        libraries=[],
    )
    assert given == [not why]
    assert facts == {"run": Started(parts={}), "gpus": not why, "no_gpus": why}
