"""Asks an engine about an image: what it exports, and whether what is in it starts, in short-lived containers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import VerificationError
from training_imgtool.direct.layers.codecs import decompress
from training_imgtool.direct.layers.tar_reader import FILE, TarReader
from training_imgtool.engines.docker.probe import Answer, Probe, run_probe
from training_imgtool.verify.facts import Fields, Listing, Started
from training_imgtool.verify.layers import read_layer

if TYPE_CHECKING:
    from training_imgtool.engines.docker.client import DockerApi

PYTHON = "/opt/venv/bin/python"
RUN_SECONDS = 300.0
_LARGEST_LAYER = 64 << 30  # bytes


def run(api: DockerApi, image: str, module: str, libraries: list[str], *, gpus: bool) -> Started:
    """Opens libraries and imports TensorFlow and the trainer as the image's own user: a smoke test and no evidence.

    Everything that answers is the image's own, so nothing that it says of files counts.
    """
    request = {"seconds": RUN_SECONDS, "module": module, "libraries": libraries}
    source = files("training_imgtool.verify").joinpath("smoke_program.py").read_text()
    text = f"{source}\nrun(json.loads({json.dumps(request)!r}))\n"
    return _read_answer(
        run_probe(api, Probe(image=image, command=(PYTHON, "-c", text), seconds=RUN_SECONDS, gpus=gpus))
    )


def read_export(api: DockerApi, image: str) -> dict[str, Listing]:
    """Reads the layers of an image out of the archive that an engine exports, by diff ID; nothing of it runs."""
    found = {}
    with api.ask(f"exporting the image {image[:40]}") as client:
        reader = TarReader(client.get_image(image))
        for member in reader.members():
            if member.kind != FILE:
                continue
            try:
                listing = read_layer(decompress(reader.content()), hashed=True, most=_LARGEST_LAYER)
            except VerificationError:
                continue  # a manifest or a config
            if listing.diff_id:
                found[listing.diff_id] = listing
    return found


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
    """Reads the config of an image that no registry has, as an engine tells it, and each layer's unpacked bytes.

    An engine does not mark the lines of its history that made no layer: lines without bytes count as such.
    """
    with api.ask(f"reading the image {image[:40]}") as client:
        details = client.inspect_image(image)
        history = list(reversed(client.history(image)))
    lines = [{"created_by": line.get("CreatedBy", ""), "empty_layer": not line.get("Size")} for line in history]
    diff_ids = (details.get("RootFS") or {}).get("Layers") or []
    config = {
        "architecture": details.get("Architecture"),
        "os": details.get("Os"),
        "config": details.get("Config") or {},
        "rootfs": {"diff_ids": diff_ids},
        "history": lines,
    }
    sizes = [int(line["Size"]) for line in history if line.get("Size")]
    return config, [("", size) for size in (*sizes, *[0] * len(diff_ids))[: len(diff_ids)]]
