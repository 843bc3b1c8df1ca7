"""Reads the tables in `data/machines`, for the targets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity
from training_imgtool.jobs.yamlio import read_table

_GKE_GPU, _PRODUCT = "cloud.google.com/gke-accelerator", "nvidia.com/gpu.product"
_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+[0-9]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Vertex AI's machines. `unknown` is the severity of findings about values that are not in the table."""

    table: Mapping[str, Any]
    unknown: Severity

    @property
    def gpus_by_machine(self) -> dict[str, Mapping[str, list[int]]]:
        """Maps a machine type to its GPU types, and each GPU type to the possible counts."""
        return {name: row["gpus"] for row in self.table["machines"] for name in row["machines"]}

    def gpus_that_fit(self, gpu: str, count: int) -> list[str]:
        """Lists the machine types that support `count` GPUs of the type `gpu`, in the table's order."""
        return [name for name, gpus in self.gpus_by_machine.items() if count in gpus.get(gpu, [])]


def machines(*, allow_unknown: bool) -> Machines:
    """Returns Vertex AI's table."""
    severity = Severity.WARNING if allow_unknown else Severity.ERROR
    return Machines(table=read_table("machines/vertex.yaml"), unknown=severity)


def nearest(value: str, choices: Iterable[str]) -> str | None:
    """Makes the hint `did you mean X?` with the closest choice: NVIDIA_L4 is like NVIDIA_TESLA_L4, not like a T4."""
    names = list(choices)
    last = value.rpartition("_")[2]
    same_end = [name for name in names if "_" in name and name.rpartition("_")[2] == last]
    close = same_end[:1] or [
        name for name in difflib.get_close_matches(value, names, n=3, cutoff=0.8) if _same_series(value, name)
    ]
    return f"did you mean {close[0]}?" if close else None


def _same_series(value: str, name: str) -> bool:
    """Tells whether a suggestion is plausible: `n1-standard-32` is not a misspelt `n1-standard-2`."""
    digits = [re.findall(r"[0-9]+", text) for text in (value, name)]
    return "-" not in name or digits[0] == digits[1]


def has_gpus(machine: str | None) -> bool:
    """Tells whether a machine type of any service includes GPUs, so that a job need not name them."""
    rows, legacy = read_table("machines/vertex.yaml")["machines"], read_table("machines/ai_platform.yaml")["legacy"]
    built_in = {name for row in rows if row.get("built_in") for name in row["machines"]}
    return machine is not None and (machine in built_in or bool(legacy.get(machine)))


def gpu_label(kind: str) -> dict[str, str]:
    """Returns the label of the nodes that have this GPU; empty if `kind` is neither Google's nor NVIDIA's name."""
    table: Mapping[str, str] = read_table("machines/gke.yaml")["gpus"]
    if kind in table:
        return {_GKE_GPU: table[kind]}
    return {_PRODUCT: kind} if re.match(r"(?:NVIDIA|Tesla|Quadro)-", kind) else {}


def gpu_findings(
    tables: Machines, *, machine_type: str, count: tuple[Path, int], gpu: tuple[Path, str]
) -> Iterator[Finding]:
    """Checks that a known machine type supports this type and this number of GPUs."""
    gpus = tables.gpus_by_machine.get(machine_type)
    if gpus is None:
        return
    allowed = gpus.get(gpu[1])
    if allowed is None:
        choices = {name for row in tables.gpus_by_machine.values() for name in row}
        fitting = tables.gpus_that_fit(gpu[1], count[1])
        takes = ", ".join(gpus) or "no GPU"
        hint = f"machines with {count[1]} of it: {', '.join(fitting[:6])}" if fitting else nearest(gpu[1], choices)
        severity = Severity.ERROR if gpu[1] in choices else tables.unknown
        yield Finding(
            path=gpu[0],
            message=f"{gpu[1]} does not fit {machine_type}, which takes {takes}",
            hint=hint,
            severity=severity,
        )
    elif count[1] not in allowed:
        fitting = tables.gpus_that_fit(gpu[1], count[1])
        yield Finding(
            path=count[0],
            message=f"{count[1]} x {gpu[1]} does not fit {machine_type}: it takes {_words(allowed)}",
            hint=f"machines with {count[1]}: {', '.join(fitting[:6])}" if fitting else None,
        )


def region_findings(tables: Machines, path: Path, region: str) -> Iterator[Finding]:
    """Checks that Vertex AI offers training in `region`."""
    choices = read_table("machines/vertex.yaml")["regions"]
    if region in choices:
        return
    if not _REGION.match(region):
        hint = (
            "a region, not a zone" if re.fullmatch(r"[a-z]+-[a-z]+[0-9]+-[a-z]", region) else nearest(region, choices)
        )
        yield Finding(path=path, message=f"{region!r} is not a region: expected a name such as us-central1", hint=hint)
        return
    yield Finding(
        path=path,
        message=f"{region!r} is not a region with training",
        hint=nearest(region, choices) or "--allow-unknown accepts it",
        severity=tables.unknown,
    )


def cuda_findings(path: Path, gpu: str, cuda: str) -> Iterator[Finding]:
    """Warns if the GPU is too new or too old for the image's CUDA."""
    row = read_table("machines/gpus.yaml").get(gpu)
    if not isinstance(row, dict):
        return
    version = _version(cuda)
    first, last = row.get("first_cuda"), row.get("last_cuda")
    if first and version < _version(first):
        message = f"{gpu} needs CUDA {first} or newer; the image has {cuda}"
    elif last and version[0] > int(last):
        message = f"no driver of {gpu} runs CUDA {cuda}: the last supported one is {last}"
    else:
        return
    yield Finding(path=path, message=message, severity=Severity.WARNING)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _words(counts: Iterable[int]) -> str:
    *head, last = (str(count) for count in counts)
    return f"{', '.join(head)} or {last}" if head else last
