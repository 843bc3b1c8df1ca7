"""AI Platform's machines: which type takes which accelerator, which roles go together, what a TPU worker is.

Source: `data/machines.yaml` and the ml.v1 discovery document, revision 20251213.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.google.common import image_findings
from training_imgtool.jobs.model import Finding, Path, Severity, count_of, get
from training_imgtool.jobs.tables import Machines, accelerator_region_findings, gpu_findings, nearest

INPUT: Path = ("trainingInput",)
PREFIXES = ("master", "worker", "parameterServer", "evaluator")
AGENT = "service-PROJECT_NUMBER@cloud-ml.google.com.iam.gserviceaccount.com"


def cluster_findings(training: Mapping[str, Any], tables: Machines) -> Iterator[Finding]:
    """Whether each role's machine, accelerator, image and disk go together and with the master's."""
    yield from _category(training, tables)
    for prefix in PREFIXES:
        yield from _replica(training, prefix, tables)


def _category(training: Mapping[str, Any], tables: Machines) -> Iterator[Finding]:
    master = training.get("masterType")
    legacy = tables.table["legacy"]
    for prefix in PREFIXES[1:]:
        kind = training.get(f"{prefix}Type")
        if not (isinstance(master, str) and isinstance(kind, str)) or "cloud_tpu" in {master, kind}:
            continue
        if (kind in legacy) is not (master in legacy):
            words = {True: "a legacy type", False: "a Compute Engine type"}
            yield Finding(
                path=(*INPUT, f"{prefix}Type"),
                message=f"{kind} is {words[kind in legacy]}, but masterType {master} is {words[master in legacy]}: "
                "a job has one sort",
            )


def _replica(training: Mapping[str, Any], prefix: str, tables: Machines) -> Iterator[Finding]:
    path: Path = (*INPUT, f"{prefix}Config")
    kind, config = training.get(f"{prefix}Type"), training.get(f"{prefix}Config")
    if isinstance(kind, str):
        yield from _machine(kind, (*INPUT, f"{prefix}Type"), tables)
    if not isinstance(config, dict):
        config = {}
    region = training.get("region") if isinstance(training.get("region"), str) else None
    yield from image_findings(config.get("imageUri"), (*path, "imageUri"), region, AGENT)
    chip = config.get("acceleratorConfig")
    if isinstance(chip, dict):
        yield from _accelerator(chip, prefix, training, tables)
    yield from _tpu(training, prefix, kind, config, tables)
    yield from _disk(config.get("diskConfig"), (*path, "diskConfig"))


def _machine(kind: str, path: Path, tables: Machines) -> Iterator[Finding]:
    choices = [*tables.gpus_by_machine, *tables.table["legacy"], tables.table["tpu"]["machine"]]
    if kind not in choices:
        hint = "it is spelt cloud_tpu here" if kind == "cloud-tpu" else nearest(kind, choices)
        yield Finding(
            path=path,
            message=f"{kind!r} is not a machine type of AI Platform",
            hint=hint or "--allow-unknown accepts it",
            severity=tables.unknown,
        )


def _accelerator(
    config: Mapping[str, Any], prefix: str, training: Mapping[str, Any], tables: Machines
) -> Iterator[Finding]:
    path: Path = (*INPUT, f"{prefix}Config", "acceleratorConfig")
    kind, region = training.get(f"{prefix}Type"), training.get("region")
    accelerator, count = config.get("type"), count_of(config.get("count"))
    if accelerator is None or count is None:
        missing = "type" if accelerator is None else "count"
        yield Finding(path=(*path, missing), message="is missing: an accelerator has a type and a count")
        return
    if not isinstance(accelerator, str):
        return
    if isinstance(region, str):
        yield from accelerator_region_findings(tables, (*path, "type"), accelerator, region)
    if kind == "cloud_tpu":
        yield from _tpu_shape(path, accelerator, count, tables)
    elif accelerator.startswith("TPU_"):
        yield Finding(path=(*path, "type"), message=f"{accelerator} needs {prefix}Type cloud_tpu, not {kind}")
    elif isinstance(kind, str) and kind in tables.table["legacy"]:
        yield Finding(
            path=path,
            message=f"does not go with the legacy type {kind}, which has "
            f"{_has(tables.table['legacy'][kind])}: expected a Compute Engine type such as n1-standard-8",
        )
    elif isinstance(kind, str):
        yield from gpu_findings(
            tables,
            machine_type=kind,
            count=((*path, "count"), count),
            gpu=((*path, "type"), accelerator),
        )
    elif training.get("scaleTier") != "CUSTOM":  # with CUSTOM the missing type is an error of its own
        yield Finding(path=path, message=f"needs scaleTier CUSTOM and {prefix}Type, a Compute Engine type")


def _tpu_shape(path: Path, accelerator: str, count: int, tables: Machines) -> Iterator[Finding]:
    counts = tables.table["tpu"]["counts"]
    if not accelerator.startswith("TPU_"):
        yield Finding(
            path=(*path, "type"), message=f"{accelerator} does not go with cloud_tpu: expected TPU_V2 or TPU_V3"
        )
    elif accelerator not in counts:
        yield Finding(
            path=(*path, "type"),
            message=f"the sizes of {accelerator} are not known here; TPU_V2 and TPU_V3 are",
            severity=tables.unknown,
        )
    elif count not in counts[accelerator]:
        yield Finding(path=(*path, "count"), message=f"{count} x {accelerator}: expected {counts[accelerator][0]}")


def _tpu(
    training: Mapping[str, Any], prefix: str, kind: Any, config: Mapping[str, Any], tables: Machines
) -> Iterator[Finding]:
    path: Path = (*INPUT, f"{prefix}Config", "tpuTfVersion")
    version = config.get("tpuTfVersion")
    basic_tpu = training.get("scaleTier") == "BASIC_TPU" and prefix == "worker"
    image = config.get("imageUri") or get(training, "masterConfig", "imageUri")
    if kind != "cloud_tpu" and not basic_tpu:
        if version is not None:
            yield Finding(path=path, message=f"goes only with a cloud_tpu worker; {prefix}Type is {kind}")
        return
    if kind == "cloud_tpu" and prefix != "worker":
        message = "cloud_tpu is documented for the worker, beside a master without a TPU"
        yield Finding(path=(*INPUT, f"{prefix}Type"), message=message, severity=Severity.WARNING)
    if kind == "cloud_tpu" and prefix == "worker" and (count_of(training.get("workerCount")) or 0) > 1:
        yield Finding(path=(*INPUT, "workerCount"), message="a job has one cloud_tpu worker: expected 1")
    if image and version is None and prefix == "worker":
        yield Finding(path=path, message="is missing: a TPU worker with an image names its TensorFlow, such as 2.11")
    elif isinstance(version, str) and not re.fullmatch(r"[0-9]+\.[0-9]+", version):
        yield Finding(path=path, message=f"{version!r}: expected TensorFlow's MAJOR.MINOR, such as 2.11")
    elif isinstance(version, str) and version not in tables.table["tpu"]["runtimes"]:
        choices = ", ".join(tables.table["tpu"]["runtimes"])
        yield Finding(
            path=path,
            message=f"imgtool's list has no TPU runtime {version}; it has {choices}",
            severity=Severity.WARNING,
        )


def _disk(disk: Any, path: Path) -> Iterator[Finding]:
    if not isinstance(disk, dict):
        return
    kind = disk.get("bootDiskType")
    if isinstance(kind, str) and kind not in {"pd-ssd", "pd-standard"}:
        yield Finding(path=(*path, "bootDiskType"), message=f"{kind!r}: expected pd-ssd or pd-standard")
    size = disk.get("bootDiskSizeGb")
    if isinstance(size, int) and size < 100:
        yield Finding(
            path=(*path, "bootDiskSizeGb"),
            message=f"{size} GB is below the default of 100; whether the service takes less is not documented",
            severity=Severity.WARNING,
        )


def _has(gpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {gpu}" for gpu, count in gpus.items()) or "no GPU"
