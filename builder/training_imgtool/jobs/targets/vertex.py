"""Vertex AI: the CustomJobSpec for `gcloud ai custom-jobs create --config`, and the API's CustomJob.

Pool 0 is the master, 1 the workers, 2 the parameter servers, 3 the evaluators. For the API, a missing pool between
others is `{}`. gcloud refuses `{}` in a file, so the file has a pool with 0 replicas there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.base.resources import data_file
from training_imgtool.jobs import launcher
from training_imgtool.jobs.model import (
    Document,
    Finding,
    Images,
    JobFile,
    JobOptions,
    Path,
    Severity,
    args_with_job_dir,
    errors_of,
    image_of,
    job_key,
    notes_of,
    passed_job_dir,
    replicas,
    results_folder,
    without_none,
)
from training_imgtool.jobs.rules.google import kms_findings, project_findings, pull_rights_findings
from training_imgtool.jobs.rules.hyperparameters import VALUES, number_errors, tuning_job
from training_imgtool.jobs.rules.shapes import shape_findings
from training_imgtool.jobs.rules.vertex import AGENT, CUSTOM_JOB, TUNING_JOB, custom_job_spec_findings, job_findings
from training_imgtool.jobs.tables import cuda_findings, machines, region_findings
from training_imgtool.jobs.targets.google import gcloud
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.model.targets import Target

_POOL = {role: index for index, role in enumerate(Role)}
_NFS = "/mnt/nfs/"  # where Vertex AI mounts every NFS export


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:
    """Finds every reason why the spec cannot be a job; each error names a key of the spec."""
    errors = list(_spec_errors(spec))
    if spec.job.hyperparameters:
        errors += number_errors(spec.job.hyperparameters)
    if not errors:
        errors += errors_of(_findings(spec, images, options), _names(spec))
    return errors


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the job of a spec in which `check` found no error, as gcloud's file and as the API's body.

    The job is a CustomJob, or a HyperparameterTuningJob if the spec has `job.hyperparameters`.
    """
    job = spec.job
    name, region = display_name(spec, images), str(job.region)
    envelope = {
        "displayName": name,
        "labels": dict(job.labels),
        "encryptionSpec": {"kmsKeyName": job.encryption_key} if job.encryption_key else None,
    }
    trial = _job_spec(spec, images, gap={})
    tuned = tuning_job(job.hyperparameters, trial) if job.hyperparameters else None
    body = without_none({**envelope, **(tuned or {"jobSpec": trial})})
    kind = gcloud.TUNING_JOBS if tuned else gcloud.CUSTOM_JOBS
    return JobFile(
        target=Target.VERTEX,
        documents=(tuned or _job_spec(spec, images, gap=_gap(spec, images)),),
        notes=(*notes_of(_findings(spec, images, options), _names(spec)), *_lost(spec)),
        command=gcloud.vertex_file_command(
            kind, name, region, options.file, project=job.project, labels=job.labels, kms_key=job.encryption_key
        ),
        api=body,
        service=gcloud.vertex_service(kind, name, region, job_key(images, spec), job.project),
    )


def display_name(spec: ImageSpec, images: Images) -> str:
    """Returns `job.display_name`, or else `job.id`, or else the spec's name followed by the job's key."""
    return spec.job.display_name or spec.job.id or f"{spec.name}-{job_key(images, spec)}"


def _job_spec(spec: ImageSpec, images: Images, gap: Document) -> Document:
    job, times = spec.job, spec.job.scheduling
    counts = replicas(spec)
    last = max(_POOL[role] for role in counts)
    pools = [_pool(spec, images, role) if role in counts else gap for role in Role if _POOL[role] <= last]
    scheduling = {} if times is None else without_none(
        {
            "timeout": times.max_running,
            "maxWaitDuration": times.max_wait,
            "restartJobOnWorkerRestart": times.restart_on_worker_restart,
            "disableRetries": times.disable_retries,
            "strategy": times.strategy,
        }
    )  # fmt: skip
    return without_none(
        {
            "workerPoolSpecs": pools,
            "scheduling": scheduling,
            "baseOutputDirectory": {"outputUriPrefix": job.job_dir} if job.job_dir else None,
            "serviceAccount": job.service_account,
            "network": job.network,
            "pscInterfaceConfig": {"networkAttachment": job.network_attachment} if job.network_attachment else None,
            "reservedIpRanges": list(job.reserved_ip_ranges),
            "tensorboard": job.tensorboard,
            "enableWebAccess": job.web_access,
            "enableDashboardAccess": job.dashboard_access,
            "persistentResourceId": job.persistent_resource,
        }
    )


def _pool(spec: ImageSpec, images: Images, role: Role) -> Document:
    of_role, job_dir = spec.roles[role], spec.job.job_dir or results_folder(spec)
    disk = of_role.disk
    container = {
        "imageUri": image_of(images, role),
        "command": list(launcher.vertex_command(spec, role)),  # the service expands variables only in `env`
        "args": args_with_job_dir(spec, role, passed_job_dir(spec, job_dir)),
        "env": [{"name": name, "value": _escape_variables(value)} for name, value in spec.job.env.items()],
    }
    return without_none(
        {
            "machineSpec": _machine(spec, role),
            "replicaCount": replicas(spec)[role],
            "containerSpec": without_none(container),
            "diskSpec": without_none({"bootDiskType": disk.type, "bootDiskSizeGb": disk.size_gb}) if disk else None,
            "nfsMounts": [
                {"server": each.nfs_server, "path": each.nfs_path, "mountPoint": each.mount.removeprefix(_NFS)}
                for each in spec.job.volumes
                if each.nfs_server
            ],
        }
    )


def _escape_variables(text: str) -> str:
    """Escapes a value, because Vertex AI expands `$(NAME)` and turns `$$(` into a plain `$(`."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _machine(spec: ImageSpec, role: Role) -> Document:
    of_role = spec.roles[role]
    tpu = of_role.tpu
    machine = of_role.machine or ("cloud-tpu" if spec.accelerator_of(role) is Accelerator.TPU else None)
    by_topology = tpu is not None and tpu.topology is not None
    chip = of_role.gpus or (None if by_topology else tpu)
    return without_none(
        {
            "machineType": machine,
            "acceleratorType": chip.type if chip else None,
            "acceleratorCount": chip.count if chip else None,
            "tpuTopology": tpu.topology if tpu else None,
            "reservationAffinity": _affinity(of_role.reservation) if of_role.reservation else None,
        }
    )


def _affinity(reservation: str) -> Document:
    kinds = {"any": "ANY_RESERVATION", "none": "NO_RESERVATION"}
    if reservation in kinds:
        return {"reservationAffinityType": kinds[reservation]}
    named = {"key": "compute.googleapis.com/reservation-name", "values": [reservation]}
    return {"reservationAffinityType": "SPECIFIC_RESERVATION", **named}


def _gap(spec: ImageSpec, images: Images) -> Document:
    return {
        "machineSpec": {"machineType": _machine(spec, Role.MASTER).get("machineType")},
        "replicaCount": 0,
        "containerSpec": {"imageUri": image_of(images, Role.MASTER)},
    }


def _has_gap(spec: ImageSpec) -> bool:
    pools = [_POOL[role] for role in replicas(spec)]
    return max(pools) + 1 != len(pools)


def _spec_errors(spec: ImageSpec) -> Iterator[FieldError]:
    job = spec.job
    if not job.region:
        yield FieldError("is missing: every job runs in a region", field="job.region", hint="for example us-central1")
    if job.display_name == "--":
        yield FieldError("gcloud does not accept '--' as a name", field="job.display_name")
    for index, volume in enumerate(job.volumes):
        field, bucket = f"job.volumes[{index}].mount", (volume.bucket or "").removeprefix("gs://").rstrip("/")
        if volume.nfs_server and not volume.mount.startswith(_NFS):
            yield FieldError(f"{volume.mount!r}: Vertex AI mounts NFS below {_NFS}", field=field)
        if bucket and volume.mount.rstrip("/") != f"/gcs/{bucket}":
            message = f"{volume.mount!r}: Vertex AI mounts every bucket below /gcs: expected /gcs/{bucket}"
            yield FieldError(message, field=field)
    yield from _machine_errors(spec)


def _machine_errors(spec: ImageSpec) -> Iterator[FieldError]:
    for role in replicas(spec):
        if "machineType" not in _machine(spec, role):
            message = f"is missing: {role} needs a machine type"
            yield FieldError(message, field=f"roles.{role}.machine", hint="for example n1-standard-8")
        tpu = spec.roles[role].tpu
        if tpu and tpu.tf_version:
            yield FieldError("only the target ai-platform supports this key", field=f"roles.{role}.tpu.tf_version")


def _findings(spec: ImageSpec, images: Images, options: JobOptions) -> list[Finding]:
    region, tuned = spec.job.region, spec.job.hyperparameters
    tables = machines(allow_unknown=options.allow_unknown)
    findings = list(region_findings(tables, ("region",), str(region)))
    findings += project_findings(spec.job.project, ("project",))
    if tuned:
        body = tuning_job(tuned, _job_spec(spec, images, gap={}))
        judged = job_findings(body, TUNING_JOB, region=region, allow_unknown=options.allow_unknown)
        findings += [replace(item, path=_in_spec(item.path)) for item in judged]
    else:
        document = _job_spec(spec, images, gap=_gap(spec, images))
        findings += custom_job_spec_findings(document, region=region, allow_unknown=options.allow_unknown)
    of_labels = shape_findings(dict(spec.job.labels), "map:google_key:64 google_value", allow_unknown=False)
    findings += [replace(item, path=("labels", *item.path)) for item in of_labels]
    findings += kms_findings(spec.job.encryption_key, ("kmsKeyName",), region)
    name = display_name(spec, images)
    if len(name) > 128:
        findings.append(Finding(path=("displayName",), message=f"{len(name)} characters: expected 128 at most"))
    uris: dict[Path, str] = {}
    for role in replicas(spec):
        pool: Path = ("workerPoolSpecs", _POOL[role])
        uris[(*pool, "containerSpec", "imageUri")] = image_of(images, role)
        gpus = spec.roles[role].gpus
        if gpus and role in options.cuda:
            findings += cuda_findings((*pool, "machineSpec", "acceleratorType"), gpus.type, options.cuda[role])
    findings += pull_rights_findings(uris, spec.job.project, AGENT)
    if _has_gap(spec) and not tuned:
        message = "a pool between others is empty: the file gives it 0 replicas, as gcloud refuses empty pools"
        hint = "Google does not document whether this works; --format json leaves the pool empty"
        findings.append(Finding(path=("workerPoolSpecs",), message=message, hint=hint, severity=Severity.WARNING))
    return findings


def _in_spec(path: Path) -> Path:
    return path[1:] if path[:1] == ("trialJobSpec",) else path


def _lost(spec: ImageSpec) -> Iterator[str]:
    if spec.job.chief_in_tf_config is False:
        yield "warning: job.chief_in_tf_config: TF_CONFIG always has chief on Vertex AI"


def _names(spec: ImageSpec) -> dict[str, str]:
    """Maps paths of the job to keys of the spec, for messages."""
    table, tuned = _read_keys(), spec.job.hyperparameters
    names = {"displayName": "job.display_name" if spec.job.display_name else "job.id", **table["job"]}
    places: list[tuple[str, dict[str, object]]] = []
    for index, param in enumerate(tuned.params if tuned else ()):
        places.append(("parameter", {"index": index, "values": VALUES[param.type]}))
    for role, index in _POOL.items():
        chip = "tpu" if role in spec.roles and spec.roles[role].tpu else "gpus"
        places.append(("pool", {"index": index, "role": role, "chip": chip}))
    for part, values in places:
        names |= {path.format(**values): key.format(**values) for path, key in table[part].items()}
    return names


@cache
def _read_keys() -> dict[str, dict[str, str]]:
    return tomllib.loads(data_file("vertex_keys.toml").read_text(encoding="utf-8"))


def judge(document: Any, *, allow_unknown: bool, region: str | None) -> list[Finding]:
    """Finds faults in a CustomJobSpec (gcloud's file), a CustomJob or a tuning job."""
    if "workerPoolSpecs" in document:
        return custom_job_spec_findings(document, region=region, allow_unknown=allow_unknown, foreign=True)
    kind = CUSTOM_JOB if "jobSpec" in document else TUNING_JOB
    return job_findings(document, kind, region=region, allow_unknown=allow_unknown, foreign=True)
