"""Replaces what Vertex AI lacks: AI Platform's scale tiers, its legacy machine types, and some GPUs.

Source: the service's page "Specifying machine types or scale tiers"; the table is in `data/machines/ai_platform.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_imgtool.jobs.model import Document, count_of
from training_imgtool.jobs.targets.ai_platform import PREFIX
from training_imgtool.jobs.yamlio import read_table

_T4_COUNTS = (1, 2, 4)


def expand_machines(training: Mapping[str, Any]) -> tuple[Document, list[str]]:
    """Returns a TrainingInput with the tier CUSTOM and only Compute Engine types, and a note for each change."""
    table = read_table("machines/ai_platform.yaml")
    tier = training.get("scaleTier") or ("CUSTOM" if "masterType" in training else "BASIC")
    made, notes = {**training, "scaleTier": "CUSTOM"}, []
    if tier != "CUSTOM":
        rows = table["tiers"][tier]
        for prefix, row in rows.items():
            made[f"{prefix}Type"] = row["machine"]
            if prefix != "master":
                made[f"{prefix}Count"] = row["count"]
            if "gpu" in row:
                chip = {"type": row["gpu"], "count": 1}
                made[f"{prefix}Config"] = {**made.get(f"{prefix}Config", {}), "acceleratorConfig": chip}
        words = ", ".join(f"{row.get('count', 1)} {prefix} on {row['machine']}" for prefix, row in rows.items())
        notes.append(f"note: trainingInput.scaleTier: {tier} becomes {words}")
    for prefix in PREFIX.values():
        notes += _compute_engine(made, prefix, table["legacy"], table["legacy_machines"])
    return made, notes


def _compute_engine(
    training: Document, prefix: str, legacy: Mapping[str, Any], machines: Mapping[str, str]
) -> list[str]:
    kind = str(training.get(f"{prefix}Type"))
    notes: list[str] = []
    config: Document = {**training.get(f"{prefix}Config", {})}
    if kind in machines:
        training[f"{prefix}Type"] = machines[kind]
        for gpu, count in legacy[kind].items():
            config["acceleratorConfig"] = {"type": gpu, "count": count}
        notes.append(f"note: trainingInput.{prefix}Type: {kind} becomes {machines[kind]}")
    chip = config.get("acceleratorConfig") or {}
    if chip.get("type") == "NVIDIA_TESLA_K80":
        count = max(size for size in _T4_COUNTS if size <= (count_of(chip.get("count")) or 1))
        config["acceleratorConfig"] = {"type": "NVIDIA_TESLA_T4", "count": count}
        notes.append(
            f"warning: trainingInput.{prefix}Config.acceleratorConfig: Vertex AI has no K80; "
            f"{count} NVIDIA_TESLA_T4 in its place, which needs CUDA 10.0 or newer in the image"
        )
    if config:
        training[f"{prefix}Config"] = config
    return notes
