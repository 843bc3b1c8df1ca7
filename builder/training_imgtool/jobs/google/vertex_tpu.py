"""Vertex AI's TPU machines: slice sizes, topologies and regions; the tables are in `data/machines.yaml`.

Source: Google's pages on TPU regions and zones and on TPUs in GKE, whose topologies `tpuTopology` follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity
from training_imgtool.jobs.tables import Machines
from training_imgtool.jobs.yamlio import read_table


def cloud_tpu_findings(accelerator: Any, count: Any, path: Path, tables: Machines) -> Iterator[Finding]:
    """Whether a cloud-tpu machine has a TPU, and as many cores as a slice has."""
    sizes = tables.table["tpu"]["counts"]
    if accelerator not in sizes:
        yield Finding(
            path=(*path, "acceleratorType"),
            message=f"{accelerator or 'is missing'}: expected {' or '.join(sizes)} with cloud-tpu",
            severity=tables.unknown if accelerator else Severity.ERROR,
        )
    elif isinstance(count, int) and count not in sizes[accelerator]:
        expected = ", ".join(map(str, sizes[accelerator]))
        message = f"{count} x {accelerator}: a slice has {expected} cores"
        yield Finding(path=(*path, "acceleratorCount"), message=message, severity=tables.unknown)


def topology_findings(kind: str, topology: Any, path: Path, tables: Machines) -> Iterator[Finding]:
    """Whether a TPU machine type has a topology that it can be part of."""
    topologies = tables.table["tpu"]["topologies"][kind]
    if topology is None:
        example = topologies[0] if topologies else "2x2x1"
        yield Finding(path=path, message=f"is missing: {kind} needs one, such as {example}")
    elif isinstance(topology, str) and not re.fullmatch(r"[1-9][0-9]*(?:x[1-9][0-9]*){1,2}", topology):
        yield Finding(path=path, message=f"{topology!r} is not a topology: expected chips by dimension, such as 2x2")
    elif isinstance(topology, str) and topologies and topology not in topologies:
        message = f"{topology} does not fit {kind}: expected {', '.join(topologies)}"
        yield Finding(path=path, message=message, severity=tables.unknown)
    elif isinstance(topology, str) and not topologies and (topology.count("x") != 2 or prod(_sides(topology)) % 4):
        message = f"{topology} does not fit {kind}: expected three dimensions and a multiple of 4 chips, such as 2x2x1"
        yield Finding(path=path, message=message)


def tpu_region_findings(machine: Mapping[str, Any], path: Path, region: str, tables: Machines) -> Iterator[Finding]:
    """A warning where the region is not known to have the TPU; Google adds regions faster than tables follow."""
    regions = tables.table["tpu"]["regions"]
    kind, accelerator = str(machine.get("machineType")), str(machine.get("acceleratorType"))
    series = accelerator if accelerator in regions else kind.partition("-")[0]
    if series in regions and region not in regions[series]:
        key = "acceleratorType" if series == accelerator else "machineType"
        message = f"{region} is not known to have {series}: {', '.join(regions[series])} are"
        yield Finding(path=(*path, key), message=message, severity=Severity.WARNING)


def is_tpu(pool: Any) -> bool:
    """Whether a worker pool runs on TPUs."""
    machine = pool.get("machineSpec") if isinstance(pool, dict) else None
    if not isinstance(machine, dict):
        return False
    tpu = read_table("machines.yaml")["vertex"]["tpu"]
    kind, accelerator = machine.get("machineType"), machine.get("acceleratorType")
    return kind in {tpu["machine"], *tpu["topologies"]} or str(accelerator).startswith("TPU_")


def _sides(topology: str) -> list[int]:
    return [int(side) for side in topology.split("x")]
