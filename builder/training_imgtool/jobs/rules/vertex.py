"""Finds what Vertex AI refuses, but gcloud accepts, in a CustomJobSpec or a HyperparameterTuningJob.

Source: the aiplatform.v1 discovery document (revision 20261106), Google's pages on distributed training and
compute for custom training, and the behaviour of gcloud 528.0.0; the tables are in `data/machines/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity, add_source, count_of, get
from training_imgtool.jobs.rules.google import (
    GCLOUD,
    bucket_findings,
    image_findings,
    kms_findings,
)
from training_imgtool.jobs.rules.hyperparameters import study_findings
from training_imgtool.jobs.rules.shapes import shape_findings, well_typed
from training_imgtool.jobs.slices import fits, is_topology, list_topologies
from training_imgtool.jobs.tables import Machines, gpu_findings, machines, nearest
from training_imgtool.jobs.yamlio import read_table

_FLEX_START = "cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws"
_WEEK = 7 * 86400
AGENT = "service-PROJECT_NUMBER@gcp-sa-aiplatform-cc.iam.gserviceaccount.com"
CUSTOM_JOB, TUNING_JOB = "CustomJob", "HyperparameterTuningJob"
_API = "aiplatform.v1 API, revision 20261106"


def job_findings(
    job: Mapping[str, Any], kind: str, *, region: str | None, allow_unknown: bool, foreign: bool = False
) -> list[Finding]:
    """Finds all faults in the body of a CustomJob or a HyperparameterTuningJob.

    gcloud's file for a HyperparameterTuningJob is such a body, too. `kind` is the body's kind; the other arguments are
    as for `custom_job_spec_findings`.
    """
    findings = list(shape_findings(job, kind, allow_unknown=allow_unknown))
    job = well_typed(job, kind)
    findings += kms_findings(get(job, "encryptionSpec", "kmsKeyName"), ("encryptionSpec", "kmsKeyName"), region)
    findings += study_findings(job)
    tables = machines(allow_unknown=allow_unknown or foreign)
    inner = "jobSpec" if kind == CUSTOM_JOB else "trialJobSpec"
    findings += _rules(job.get(inner), (inner,), region, tables, empty_pools=True)
    return list(add_source(findings, _API))


def custom_job_spec_findings(
    spec: Any, *, region: str | None, allow_unknown: bool, foreign: bool = False
) -> list[Finding]:
    """Finds all faults in a CustomJobSpec, the file of `gcloud ai custom-jobs create --config`.

    gcloud also accepts a single pool in place of the list of pools; Google's page shows such a file.

    Args:
        spec: the document.
        region: the region of the job, if known.
        allow_unknown: whether keys, accelerators, machines and sizes that imgtool does not know are only warnings.
        foreign: like `allow_unknown`, but only for machines and sizes, because Vertex AI adds new ones.
    """
    alone = isinstance(spec.get("workerPoolSpecs"), dict)
    if alone:
        spec = {**spec, "workerPoolSpecs": [spec["workerPoolSpecs"]]}
    findings = list(shape_findings(spec, "CustomJobSpec", allow_unknown=allow_unknown))
    tables = machines(allow_unknown=allow_unknown or foreign)
    findings += _rules(well_typed(spec, "CustomJobSpec"), (), region, tables, empty_pools=False)
    findings = list(add_source(findings, _API))
    return [replace(item, path=_without_index(item.path)) for item in findings] if alone else findings


def _without_index(path: Path) -> Path:
    return (path[0], *path[2:]) if path[:2] == ("workerPoolSpecs", 0) else path


def _rules(spec: Any, path: Path, region: str | None, tables: Machines, *, empty_pools: bool) -> Iterator[Finding]:
    if not isinstance(spec, dict):
        return
    yield from resource_findings(spec, path, region)
    output = ("baseOutputDirectory", "outputUriPrefix")
    yield from bucket_findings(get(spec, *output), (*path, *output))
    scheduling = spec.get("scheduling") or {}
    yield from _scheduling(scheduling, (*path, "scheduling"))
    pools, where = spec.get("workerPoolSpecs") or [], (*path, "workerPoolSpecs")
    yield from _pools(pools, where)
    yield from _capacity(pools, where, scheduling.get("strategy"), region)
    for index, pool in enumerate(pools):
        if pool == {}:
            yield from _empty(index, pools, (*where, index), allowed=empty_pools)
        elif isinstance(pool, dict):
            yield from _pool(pool, (*where, index), region, tables)
            if "nfsMounts" in pool and not _reaches_a_network(spec):
                message = "an NFS server is in a VPC network: expected network or pscInterfaceConfig"
                yield Finding(path=(*where, index, "nfsMounts"), message=message, severity=Severity.WARNING)


def _reaches_a_network(spec: Mapping[str, Any]) -> bool:
    return any(key in spec for key in ("network", "pscInterfaceConfig", "persistentResourceId"))


def _pools(pools: list[Any], path: Path) -> Iterator[Finding]:
    first = pools[0] if pools else None
    if first and count_of(first.get("replicaCount", 1)) != 1:
        message = f"{first['replicaCount']}: pool 0 is the chief, so expected 1"
        yield Finding(path=(*path, 0, "replicaCount"), message=message)
    tpus = [i for i, pool in enumerate(pools) if is_tpu(pool)]
    if tpus and (len(pools) > 1 or count_of(pools[tpus[0]].get("replicaCount", 1)) != 1):
        yield Finding(
            path=(*path, tpus[0]),
            message="a TPU job has exactly one pool of one replica",
            hint="the CPU master beside a TPU worker does not carry over from AI Platform",
        )


def _empty(index: int, pools: list[Any], path: Path, *, allowed: bool) -> Iterator[Finding]:
    if index == 0:
        yield Finding(path=path, message="is empty: pool 0 is the chief")
    elif index == len(pools) - 1:
        message = "is empty: leave out the last pools instead"
        yield Finding(
            path=path, message=message, severity=Severity.WARNING if allowed else Severity.ERROR, source=GCLOUD
        )
    elif not allowed:
        yield Finding(
            path=path,
            message="is empty, which gcloud refuses in a file",
            source=GCLOUD,
            hint="give it an image and replicaCount 0, or use flags: --worker-pool-spec=",
        )


def _pool(pool: Mapping[str, Any], path: Path, region: str | None, tables: Machines) -> Iterator[Finding]:
    kinds = [key for key in ("containerSpec", "pythonPackageSpec") if key in pool]
    if len(kinds) != 1:
        yield Finding(path=path, message="expected exactly one of containerSpec and pythonPackageSpec")
    for key in kinds:
        image = "imageUri" if key == "containerSpec" else "executorImageUri"
        yield from image_findings(pool[key].get(image), (*path, key, image), region, AGENT)
        yield from _env(pool[key].get("env"), (*path, key, "env"))
    if (machine := pool.get("machineSpec")) is not None:
        yield from _machine(machine, (*path, "machineSpec"), tables)
        if region is not None:
            yield from tpu_region_findings(machine, (*path, "machineSpec"), region, tables)
    else:
        yield Finding(path=(*path, "machineSpec"), message="is missing: every pool needs a machine type")
    disk, choices = get(pool, "diskSpec", "bootDiskType"), tables.table["disks"]
    if disk not in {None, *choices}:
        message = f"{disk!r}: expected {', '.join(choices)}"
        yield Finding(path=(*path, "diskSpec", "bootDiskType"), message=message, severity=tables.unknown)


def _machine(machine: Mapping[str, Any], path: Path, tables: Machines) -> Iterator[Finding]:
    kind = machine.get("machineType")
    if not isinstance(kind, str):
        return
    tpu = tables.table["tpu"]
    accelerator, count = machine.get("acceleratorType"), machine.get("acceleratorCount")
    if (accelerator is None) is not (count is None):
        missing = "acceleratorType" if accelerator is None else "acceleratorCount"
        yield Finding(path=(*path, missing), message="is missing: an accelerator needs both a type and a count")
        return
    if kind == tpu["machine"]:
        yield from cloud_tpu_findings(accelerator, count, path, tables)
    elif kind in tpu["machines"]:
        yield from topology_findings(kind, machine.get("tpuTopology"), (*path, "tpuTopology"), tables)
    elif kind in tables.gpus_by_machine:
        yield from _gpu_machine(kind, accelerator, count, path, tables)
    else:
        yield from _other_machine(kind, accelerator, path, tables)


def _gpu_machine(kind: str, accelerator: Any, count: Any, path: Path, tables: Machines) -> Iterator[Finding]:
    if isinstance(accelerator, str) and isinstance(count, int):
        yield from gpu_findings(
            tables,
            machine_type=kind,
            count=((*path, "acceleratorCount"), count),
            gpu=((*path, "acceleratorType"), accelerator),
        )
        return
    row = next(row for row in tables.table["machines"] if kind in row["machines"])
    if row.get("built_in"):
        gpu, counts = next(iter(row["gpus"].items()))
        yield Finding(
            path=(*path, "acceleratorType"),
            message=f"{kind} comes with {counts[0]} {gpu}; name it, or Vertex AI may refuse the job",
            severity=Severity.WARNING,
        )


def _other_machine(kind: str, accelerator: Any, path: Path, tables: Machines) -> Iterator[Finding]:
    if any(re.fullmatch(pattern, kind) for pattern in tables.table["cpu_families"]):
        if accelerator is not None:
            yield Finding(
                path=(*path, "acceleratorType"), message=f"{accelerator} does not fit {kind}, which takes no GPU"
            )
        return
    if kind in read_table("machines/ai_platform.yaml")["legacy"]:
        yield Finding(
            path=(*path, "machineType"),
            message=f"{kind} is a legacy type of AI Platform; Vertex AI has Compute Engine types only",
            hint="for example n1-standard-8",
        )
        return
    choices = [*tables.gpus_by_machine, tables.table["tpu"]["machine"], *tables.table["tpu"]["machines"]]
    hint = "Vertex AI spells it cloud-tpu" if kind == "cloud_tpu" else nearest(kind, choices)
    series = [name for name in choices if name.rpartition("-")[0] == kind.rpartition("-")[0] != ""]
    hint = hint or (f"expected one of {', '.join(series)}" if series else None)
    yield Finding(
        path=(*path, "machineType"),
        message=f"{kind!r} is not a machine type of Vertex AI",
        hint=hint or "--allow-unknown accepts it",
        severity=tables.unknown,
    )


def _scheduling(scheduling: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    strategy = scheduling.get("strategy")
    if strategy in {"ON_DEMAND", "LOW_COST"}:
        now = {"ON_DEMAND": "STANDARD", "LOW_COST": "SPOT"}[strategy]
        message = f"{strategy} is deprecated: use {now}"
        yield Finding(path=(*path, "strategy"), message=message, severity=Severity.WARNING)
    if "maxWaitDuration" in scheduling and strategy != "FLEX_START":
        yield Finding(
            path=(*path, "maxWaitDuration"),
            message="has an effect only with the strategy FLEX_START",
            severity=Severity.WARNING,
        )

    timeout = scheduling.get("timeout")
    if strategy == "FLEX_START" and isinstance(timeout, str) and float(timeout[:-1]) > _WEEK:
        message = f"{timeout}: a FLEX_START job runs at most seven days, {_WEEK}s"
        yield Finding(path=(*path, "timeout"), message=message, source=_FLEX_START)
    if scheduling.get("disableRetries") and scheduling.get("restartJobOnWorkerRestart"):
        message = "has no effect with disableRetries"
        yield Finding(path=(*path, "restartJobOnWorkerRestart"), message=message, severity=Severity.WARNING)


def _capacity(pools: list[Any], path: Path, strategy: Any, region: str | None) -> Iterator[Finding]:
    """Finds pools that FLEX_START does not support, and reservations that fit no machine or are in another region."""
    gpus = read_table("machines/vertex.yaml")["flex_start"]
    given = [
        ((*path, index, "machineSpec"), pool.get("machineSpec") or {})
        for index, pool in enumerate(pools)
        if isinstance(pool, dict) and count_of(pool.get("replicaCount", 1)) and pool
    ]
    for where, machine in given if strategy == "FLEX_START" else ():
        kind = machine.get("acceleratorType")
        if kind not in gpus:
            message = f"{kind or 'is missing'}: FLEX_START supports {', '.join(gpus)}"
            yield Finding(path=(*where, "acceleratorType"), message=message, source=_FLEX_START)
        if machine != given[0][1]:
            message = "differs from the first pool's: FLEX_START needs the same machines in all pools"
            yield Finding(path=where, message=message, source=_FLEX_START)
    for where, machine in given:
        if affinity := machine.get("reservationAffinity"):
            yield from _reservation(affinity, (*where, "reservationAffinity"), strategy, region)


def _reservation(affinity: Mapping[str, Any], path: Path, strategy: Any, region: str | None) -> Iterator[Finding]:
    kind = affinity.get("reservationAffinityType")
    if (kind == "SPECIFIC_RESERVATION") is not bool(affinity.get("key") and affinity.get("values")):
        yield Finding(path=path, message="expected key and values with SPECIFIC_RESERVATION, and only there")
    if strategy in {"SPOT", "LOW_COST", "FLEX_START"} and kind != "NO_RESERVATION":
        message = f"{strategy} machines do not come from a reservation"
        yield Finding(path=path, message=message, severity=Severity.WARNING)
    for index, name in enumerate(affinity.get("values") or []):
        zone = re.search(r"/zones/([^/]+)-[a-z]/", str(name))
        if zone and region and zone[1] != region:
            message = f"the reservation is in {zone[1]}, the job runs in {region}"
            yield Finding(path=(*path, "values", index), message=message)


def _env(env: Any, path: Path) -> Iterator[Finding]:
    names = [get(entry, "name") for entry in env or ()]
    for index, name in enumerate(names):
        if name in names[:index]:
            message = f"{name!r} appears twice"
            yield Finding(path=(*path, index, "name"), message=message, severity=Severity.WARNING)


def cloud_tpu_findings(accelerator: Any, count: Any, path: Path, tables: Machines) -> Iterator[Finding]:
    """Checks that a cloud-tpu machine names a TPU type, and a number of cores that a slice can have."""
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
    """Checks that the topology is given, and that machines of this TPU type can form it."""
    example = read_table("machines/tpus.yaml")["machines"][kind]["topologies"][0]
    if topology is None:
        yield Finding(path=path, message=f"is missing: {kind} needs one, such as {example}")
    elif isinstance(topology, str) and not is_topology(topology):
        yield Finding(
            path=path, message=f"{topology!r} is not a topology: expected chips by dimension, such as {example}"
        )
    elif isinstance(topology, str) and not fits(kind, topology):
        message = f"{topology} does not fit {kind}: expected {list_topologies(kind)}"
        yield Finding(path=path, message=message, severity=tables.unknown)


def tpu_region_findings(machine: Mapping[str, Any], path: Path, region: str, tables: Machines) -> Iterator[Finding]:
    """Warns if the table does not list the TPU in the region. It is only a warning, as Google adds regions."""
    regions = tables.table["tpu"]["regions"]
    kind, accelerator = str(machine.get("machineType")), str(machine.get("acceleratorType"))
    series = accelerator if accelerator in regions else kind.partition("-")[0]
    if series in regions and region not in regions[series]:
        key = "acceleratorType" if series == accelerator else "machineType"
        message = f"imgtool does not know {series} in {region}, only in {', '.join(regions[series])}"
        yield Finding(path=(*path, key), message=message, severity=Severity.WARNING)


def is_tpu(pool: Any) -> bool:
    """Tells whether a worker pool runs on TPUs."""
    machine = get(pool or {}, "machineSpec") or {}
    tpu = read_table("machines/vertex.yaml")["tpu"]
    kind, accelerator = machine.get("machineType"), machine.get("acceleratorType")
    return kind in {tpu["machine"], *tpu["machines"]} or str(accelerator).startswith("TPU_")


def resource_findings(spec: Mapping[str, Any], path: Path, region: str | None) -> Iterator[Finding]:
    """Finds resources outside the job's region, a missing service account, and conflicting networks."""
    attachment: Path = ("pscInterfaceConfig", "networkAttachment")
    for where, what in (("tensorboard",), "the Tensorboard"), (attachment, "the network attachment"):
        match = re.search(r"/(?:locations|regions)/([^/]+)/", str(get(dict(spec), *map(str, where))))
        if match and region and match[1] != region:
            message = f"{what} is in {match[1]}, the job runs in {region}"
            yield Finding(path=(*path, *where), message=message, severity=Severity.WARNING)
    if "tensorboard" in spec and "serviceAccount" not in spec:
        message = "uploads need a service account with write access: expected serviceAccount"
        yield Finding(path=(*path, "tensorboard"), message=message, severity=Severity.WARNING)
    if "pscInterfaceConfig" in spec and "network" in spec:
        message = "does not go with network: a job uses peering or a Private Service Connect interface"
        yield Finding(path=(*path, "pscInterfaceConfig"), message=message, severity=Severity.WARNING)
