"""Looks at an image from inside, in short-lived containers on an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from training_imgtool.engines.docker.probe import Answer, Probe, run_probe
from training_imgtool.verify.facts import Bytecode, Fields, Started, Tree, VenvFiles
from training_imgtool.verify.inside.program import write_program

if TYPE_CHECKING:
    from training_imgtool.engines.docker.client import DockerApi

PYTHON = "/opt/venv/bin/python"
PROGRAM = ("interesting_paths", "bytecode", "venv_files", "program")  # modules, in the order of their imports
LOOK_SECONDS = 300.0
RUN_SECONDS = 300.0
_ROOT = "0:0"  # reads what the image's own user may not


def look(
    api: DockerApi,
    image: str,
    libraries: tuple[str, ...],
    folders: tuple[str, ...],
    *,
    exclude: tuple[str, ...],
    compared: tuple[str, ...],
) -> Started:
    """Reads the interpreter, the files and the libraries, as root in a container that cannot change anything.

    Args:
        api: the engine.
        image: a digest reference or an image ID.
        libraries: the shared libraries to open.
        folders: relative to the root; the program hashes the files in them, and those of /opt/venv.
        exclude: what the spec leaves out of site-packages.
        compared: the hashes of all bytecode and sources that earlier containers compared.
    """
    request = {"seconds": LOOK_SECONDS, "libraries": libraries, "folders": folders}
    request |= {"exclude": exclude, "compared": compared}
    text = _write_text("look", request)
    probe = Probe(image=image, command=(PYTHON, "-I", "-c", text), user=_ROOT, read_only=True, seconds=LOOK_SECONDS)
    return _read_answer(run_probe(api, probe))


def run(api: DockerApi, image: str, module: str, *, gpus: bool) -> Started:
    """TensorFlow and the trainer imported as the image's own user; the container may write, as it may in training."""
    text = _write_text("run", {"seconds": RUN_SECONDS, "module": module})
    return _read_answer(
        run_probe(api, Probe(image=image, command=(PYTHON, "-c", text), seconds=RUN_SECONDS, gpus=gpus))
    )


def read_tree(inspection: Started) -> Tree | None:
    """The file system that a container showed; None when it did not get that far."""
    files = inspection.parts.get("files")
    if files is None:
        return None
    return Tree(
        items={item["path"]: item for item in files["items"]},
        folders=files["folders"],
        complete=True,
        unread=tuple(files["unread"]),
        files={path: (int(size), str(digest)) for path, (size, digest) in files["contents"].items()},
        venv=VenvFiles(**{name: tuple(paths) for name, paths in files["venv"].items()}),
    )


def read_bytecode(inspection: Started, before: dict[str, Bytecode]) -> Bytecode | None:
    """What the container says about bytecode, or another one said `before` of the same files, by their hash.

    None when it did not get that far.
    """
    begun, compared = (inspection.parts.get(part) for part in ("reading bytecode", "bytecode"))
    if begun is None:
        return None
    content = str(begun["content"])
    if compared is not None:
        before[content] = Bytecode(count=begun["count"], differ=tuple(compared["differ"]))
    if content in before:
        return before[content]
    end = inspection.parts.get("end") or {}
    if end.get("signal") and not end.get("late"):
        return Bytecode(count=begun["count"], ended=f"the image's Python ended by signal {end['signal']}")
    return Bytecode(count=begun["count"], unseen=f"it takes more than {LOOK_SECONDS:.0f} s")


def _write_text(call: str, request: dict[str, Any]) -> str:
    package = files("training_imgtool.verify.inside")
    return write_program(call, request, tuple((package / f"{name}.py").read_text() for name in PROGRAM))


def _read_answer(answer: Answer) -> Started:
    parts: dict[str, Fields] = {}
    for line in answer.output.splitlines():
        try:
            part = json.loads(line)
        except ValueError:
            continue
        if isinstance(part, dict) and isinstance(part.get("part"), str):
            parts[part["part"]] = part
    if answer.late and "end" not in parts:
        parts["end"] = {"late": True, "signal": 9}
    fault = answer.fault
    if fault is None and not parts:
        fault = answer.errors.splitlines()[-1] if answer.errors else "it printed nothing"
    return Started(parts=parts, fault=fault, errors=answer.errors)


def read_engine_config(api: DockerApi, image: str) -> tuple[Mapping[str, Any], list[tuple[str, int]]]:
    """The config of an image that no registry has, as an engine tells it, and each layer's unpacked bytes.

    An engine does not mark the lines of its history that made no layer: lines without bytes count as such.
    """
    with api.ask(f"reading the image {image[:40]}") as client:
        details = client.inspect_image(image)
        history = list(reversed(client.history(image)))
    lines = [{"created_by": line.get("CreatedBy", ""), "empty_layer": not line.get("Size")} for line in history]
    config = {
        "architecture": details.get("Architecture"),
        "os": details.get("Os"),
        "config": details.get("Config") or {},
        "rootfs": {"diff_ids": (details.get("RootFS") or {}).get("Layers") or []},
        "history": lines,
    }
    return config, [("", int(line["Size"])) for line in history if line.get("Size")]
