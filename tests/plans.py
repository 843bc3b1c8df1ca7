"""Makes locked variants and recipes for tests: small, complete, and different only where a test says so."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from training_imgtool.base.reference import parse_repository
from training_imgtool.model.entry_point import EntryPoint
from training_imgtool.model.lock import LockedDebian, LockedVariant, Variant, Wheel
from training_imgtool.model.recipe import apt_step, install_step
from training_imgtool.model.recipe.recipe import Lines, Recipe
from training_imgtool.model.spec import INIT, Accelerator, Role
from training_imgtool.plan.inputs import Inputs

CUDA_LIBRARIES = ("libcublas.so.12", "libcudart.so.12", "libcudnn.so.8")


def wheel(name: str, version: str, *, data: bytes | None = None) -> Wheel:
    """A wheel that is made up, or of `data`."""
    content = data if data is not None else f"{name} {version}".encode()
    return Wheel(
        name=name,
        version=version,
        file=f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
    )


def variant(name: str = "cpu", **changes: Any) -> Variant:
    """The variant `cpu`, `gpu` or `tpu` of TensorFlow 2.15.1, with `changes`."""
    slim = "docker.io/library/python:3.11-slim-bookworm"
    values: dict[str, Any] = {
        "name": name,
        "roles": tuple(Role),
        "accelerator": Accelerator(name) if name in tuple(Accelerator) else Accelerator.CPU,
        "package": "tensorflow-cpu",
        "tensorflow": "2.15.1",
        "python": "3.11",
        "cuda": None,
        "cudnn": None,
        "base": slim,
        "os": "debian12",
        "python_from": "image",
        "python_executable": "/usr/local/bin/python3.11",
        "requirements": ("tensorflow-cpu==2.15.1",),
        "constraints": ("setuptools<81",),
        "libraries": (),
    }
    if name == "gpu":
        values |= {
            "package": "tensorflow",
            "python": "3.10",
            "cuda": "12.2",
            "cudnn": "8.9",
            "base": "docker.io/nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04",
            "os": "ubuntu22.04",
            "python_from": "apt",
            "python_executable": "/usr/bin/python3.10",
            "requirements": ("tensorflow==2.15.1",),
            "libraries": CUDA_LIBRARIES,
        }
    if name == "tpu":
        values |= {"package": "tensorflow-tpu", "tensorflow": "2.19.1", "requirements": ("tensorflow-tpu==2.19.1",)}
    return Variant(**(values | changes))


def locked(name: str = "cpu", *, wheels: tuple[Wheel, ...] | None = None, **changes: Any) -> LockedVariant:
    """The variant with a made-up base digest and two wheels."""
    chosen = variant(name, **changes)
    present = wheels if wheels is not None else (wheel("numpy", "1.26.4"), wheel(chosen.package, chosen.release))
    return LockedVariant(
        variant=chosen,
        base_digest=f"sha256:{hashlib.sha256(chosen.base.encode()).hexdigest()}",
        installer=wheel("pip", "24.3.1"),
        wheels=tuple(sorted(present, key=lambda one: one.name)),
    )


def unresolved_packages(variant: Variant, names: tuple[str, ...]) -> LockedDebian | None:
    """The Debian packages of a variant as a lock has them that leaves them to an engine; None without any."""
    requested = apt_step.apt_packages(variant, (*names, *variant.apt))
    return LockedDebian(requested=requested, engine="nobody looked") if requested else None


def entry_point(folder: str = "trainer", module: str = "trainer.task") -> EntryPoint:
    """A module in a folder."""
    return EntryPoint(folder=folder, module=module, script=None, file=f"{module.replace('.', '/')}.py")


def recipe(name: str = "cpu", *, locked_variant: LockedVariant | None = None, **changes: Any) -> Recipe:
    """A recipe without files of the variant cpu, gpu or tpu, or of `locked_variant`, with `changes` to its fields."""
    chosen = locked_variant or locked(name)
    repository, _, _ = chosen.variant.base.rpartition(":")
    cuda_base = chosen.variant.cuda is not None and "cuda" in chosen.variant.base
    values: dict[str, Any] = {
        "platform": "linux/amd64",
        "compression": "gzip",
        "epoch": 0,
        "base": parse_repository(repository).digest(chosen.base_digest),
        "base_name": chosen.variant.base,
        "locked": chosen,
        "library_path": install_step.library_path(chosen, cuda_base=cuda_base),
        "libraries": chosen.variant.libraries if cuda_base else (),
        "run": Lines(),
        "exclude": (),
        "run_after_packages": Lines(),
        "files": (),
        "code": (),
        "working_folder": "/app",
        "env": {},
        "labels": {
            "org.opencontainers.image.title": "mnist",
            "org.opencontainers.image.revision": "0" * 40,
            "dev.imgtool.tensorflow": chosen.variant.tensorflow,
        },
        "user": None,
        "entrypoint": (*INIT, "/opt/venv/bin/python", *entry_point().arguments),
    }
    return Recipe(**(values | changes))


def with_locked(inputs: Inputs, locked: LockedVariant) -> Inputs:
    """The inputs with another variant of the lock for every role; keys and stages stay."""
    images = (replace(image, recipe=replace(image.recipe, locked=locked)) for image in inputs.images)
    return replace(inputs, images=tuple(images))
