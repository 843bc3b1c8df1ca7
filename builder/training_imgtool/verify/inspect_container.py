"""An image seen from inside: short-lived containers on an engine that look, and import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from training_imgtool.engines.docker.probe import Answer, Probe, run_probe
from training_imgtool.verify.facts import Started, Told, Tree
from training_imgtool.verify.program import program_text

if TYPE_CHECKING:
    from training_imgtool.engines.docker.client import DockerApi

PYTHON = "/opt/venv/bin/python"
LOOK_SECONDS = 180.0
RUN_SECONDS = 300.0
_ROOT = "0:0"  # reads what the image's own user may not


def look(api: DockerApi, image: str, libraries: tuple[str, ...]) -> Started:
    """The interpreter, the files and the libraries, read by root in a container that cannot change anything."""
    text = _text("look", {"seconds": LOOK_SECONDS, "libraries": list(libraries)})
    probe = Probe(image=image, command=(PYTHON, "-I", "-c", text), user=_ROOT, read_only=True, seconds=LOOK_SECONDS)
    return _started(run_probe(api, probe))


def run(api: DockerApi, image: str, module: str, *, gpus: bool) -> Started:
    """TensorFlow and the trainer imported as the image's own user; the container may write, as it may in training."""
    text = _text("run", {"seconds": RUN_SECONDS, "module": module})
    return _started(run_probe(api, Probe(image=image, command=(PYTHON, "-c", text), seconds=RUN_SECONDS, gpus=gpus)))


def tree_of(looked: Started) -> Tree | None:
    """The file system that a container showed; None when it did not get that far."""
    told = looked.parts.get("files")
    if told is None:
        return None
    return Tree(
        items={one["path"]: one for one in told["items"]},
        folders=told["folders"],
        complete=True,
        unread=tuple(told["unread"]),
    )


def _text(call: str, request: dict[str, Any]) -> str:
    package = files("training_imgtool.verify")
    return program_text(call, request, (package / "interesting_paths.py").read_text(), (package / "program.py").read_text())


def _started(answer: Answer) -> Started:
    parts: dict[str, Told] = {}
    for line in answer.output.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(told.get("part"), str):
            parts[told["part"]] = told
    if answer.late and "end" not in parts:
        parts["end"] = {"late": True, "signal": 9}
    fault = answer.fault
    if fault is None and not parts:
        fault = answer.errors.splitlines()[-1] if answer.errors else "it printed nothing"
    return Started(parts=parts, fault=fault, errors=answer.errors)


def engine_config(api: DockerApi, image: str) -> tuple[Mapping[str, Any], list[tuple[str, int]]]:
    """What an engine knows of an image that no registry has: an image config, and each layer's unpacked bytes.

    An engine does not tell which line of its history made no layer; those without bytes are taken for such.
    """
    with api.ask(f"reading the image {image[:40]}") as client:
        known = client.inspect_image(image)
        history = list(reversed(client.history(image)))
    lines = [{"created_by": line.get("CreatedBy", ""), "empty_layer": not line.get("Size")} for line in history]
    config = {
        "architecture": known.get("Architecture"),
        "os": known.get("Os"),
        "config": known.get("Config") or {},
        "rootfs": {"diff_ids": (known.get("RootFS") or {}).get("Layers") or []},
        "history": lines,
    }
    return config, [("", int(line["Size"])) for line in history if line.get("Size")]
