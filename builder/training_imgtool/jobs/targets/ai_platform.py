"""AI Platform Training: the Job for `gcloud ai-platform jobs submit training --config`.

The service closed on 2025-01-31; `vertex` is its successor. So imgtool does not check the values in a Job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs import launcher
from training_imgtool.jobs.frameworks import says_chief
from training_imgtool.jobs.model import (
    Document,
    Images,
    JobFile,
    JobOptions,
    errors_of,
    image_of,
    job_args,
    job_key,
    minor_of,
    replicas,
    without_none,
)
from training_imgtool.jobs.rules.google import bucket_findings, project_findings
from training_imgtool.jobs.targets.google import gcloud
from training_imgtool.jobs.yamlio import read_table
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

CLOSED = "AI Platform Training closed on 2025-01-31; its successor is Vertex AI: --target vertex"
_JOB_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
PREFIX = dict(zip(Role, ("master", "worker", "parameterServer", "evaluator"), strict=True))


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Finds every reason why the spec cannot be a Job; each error names a key of the spec."""
    return [
        *_spec_errors(spec, options),
        *errors_of(project_findings(spec.job.project, ("project",)), {"project": "job.project"}),
    ]


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the Job of a spec in which `check` found no error."""
    job = _job(spec, images, options)
    command = gcloud.file_command(job, options.file, spec.job.project)
    return JobFile(
        target=Target.AI_PLATFORM,
        documents=(job,),
        notes=(CLOSED, *_notes(spec)),
        command=command,
        flags=lambda: gcloud.flag_command(job, spec.job.project),
        stage=_stage(options),
        service=gcloud.ai_platform_service(job, spec.job.project),
    )


def _notes(spec: ImageSpec) -> Iterator[str]:
    """Warns of buckets that gcloud refuses: it reads packages only from a flag. The API does not check them."""
    given = {"package_uris": spec.job.package_uris, "staging": (spec.job.staging,)}
    for key, uris in given.items() if spec.job.runtime_version else ():
        yield from (f"warning: job.{key}: {found.message}" for uri in uris for found in bucket_findings(uri, ()))


def _stage(options: JobOptions) -> tuple[str, ...]:
    """Makes the command that uploads the package, a file beside the job file, to Cloud Storage."""
    if not options.package_uri:
        return ()
    file = PurePath(options.file).with_name(options.package_uri.rpartition("/")[2])
    return ("gcloud", "storage", "cp", str(file), options.package_uri)


def job_id(spec: ImageSpec, images: Images) -> str:
    """Returns the job's ID: `job.id`, or else the spec's name followed by the job's key."""
    if spec.job.id:
        return spec.job.id
    name = re.sub(r"\W", "_", spec.name, flags=re.ASCII)
    return f"{name if name[:1].isalpha() else f'job_{name}'}_{job_key(images, spec)}"


def _job(spec: ImageSpec, images: Images, options: JobOptions) -> Document:
    training = _make_package_input(spec, options) if spec.job.runtime_version else _containers(spec, images)
    return without_none(
        {"jobId": job_id(spec, images), "labels": dict(spec.job.labels), "trainingInput": without_none(training)}
    )


def _containers(spec: ImageSpec, images: Images) -> Document:
    roles = [role for role in Role if role in replicas(spec)]
    own = any(spec.roles[role].args is not None or spec.roles[role].command is not None for role in roles)
    chief = spec.job.chief_in_tf_config
    return {
        **_cluster(spec),
        **{f"{PREFIX[role]}Config": _replica(spec, role, images, own_args=own) for role in roles},
        "args": None if own else list(spec.args),
        **_common(spec),
        "useChiefInTfConfig": (says_chief(spec) or None) if chief is None else chief,
    }


def _make_package_input(spec: ImageSpec, options: JobOptions) -> Document:
    uris = list(spec.job.package_uris) or ([options.package_uri] if options.package_uri else [])
    configs = {f"{PREFIX[role]}Config": _machine_config(spec, role) for role in replicas(spec)}
    return {
        **_cluster(spec),
        **configs,
        "runtimeVersion": spec.job.runtime_version,
        "pythonVersion": spec.job.python_version,
        "packageUris": uris,
        "pythonModule": spec.trainer.module or "trainer.task",
        "args": list(spec.args),
        **_common(spec),
    }


def _cluster(spec: ImageSpec) -> Document:
    if spec.job.scale_tier and spec.job.scale_tier != "CUSTOM":
        return {"scaleTier": spec.job.scale_tier}
    counts = replicas(spec)
    types = {f"{PREFIX[role]}Type": machine_of(spec, role) for role in counts}
    numbers = {f"{PREFIX[role]}Count": count for role, count in counts.items() if role is not Role.MASTER}
    return {"scaleTier": "CUSTOM", **types, **numbers}


def machine_of(spec: ImageSpec, role: Role) -> str | None:
    """Returns the role's machine type; for a TPU role, `cloud_tpu` is the default."""
    tpu = spec.accelerator_of(role) is Accelerator.TPU
    return spec.roles[role].machine or ("cloud_tpu" if tpu else None)


def _replica(spec: ImageSpec, role: Role, images: Images, *, own_args: bool) -> Document:
    """Makes a role's config, which always names an image, even if the role uses the master's."""
    container: Document = {"imageUri": image_of(images, role)}
    if own_args:
        container["containerCommand"] = list(launcher.entrypoint(spec, role))
        container["containerArgs"] = list(job_args(spec, role))
    return without_none({**container, **_machine_config(spec, role)})


def _machine_config(spec: ImageSpec, role: Role) -> Document:
    of_role = spec.roles[role]
    tpu = spec.accelerator_of(role) is Accelerator.TPU and not spec.job.runtime_version
    disk = of_role.disk
    return without_none(
        {
            "acceleratorConfig": _accelerator(of_role),
            "tpuTfVersion": _tpu_version(spec, of_role) if tpu else None,
            "diskConfig": without_none({"bootDiskType": disk.type, "bootDiskSizeGb": disk.size_gb}) if disk else None,
        }
    )


def _accelerator(of_role: RoleSpec) -> Document | None:
    chosen = of_role.gpus or of_role.tpu
    return {"type": chosen.type, "count": chosen.count} if chosen else None


def _tpu_version(spec: ImageSpec, of_role: RoleSpec) -> str:
    return (of_role.tpu.tf_version if of_role.tpu else None) or minor_of(spec)


def _common(spec: ImageSpec) -> Document:
    job = spec.job
    times = job.scheduling
    scheduling = {} if times is None else without_none(
        {"maxWaitTime": times.max_wait, "maxRunningTime": times.max_running, "priority": times.priority}
    )  # fmt: skip
    return {
        "region": job.region,
        "jobDir": job.job_dir,
        "scheduling": scheduling,
        "network": job.network,
        "serviceAccount": job.service_account,
        "encryptionConfig": {"kmsKeyName": job.encryption_key} if job.encryption_key else None,
        "enableWebAccess": job.web_access,
    }


def _spec_errors(spec: ImageSpec, options: JobOptions) -> Iterator[FieldError]:
    if spec.job.env:
        yield FieldError("AI Platform cannot set environment variables", field="job.env", hint="use the spec's `env`")
    if spec.job.id and not _JOB_ID.fullmatch(spec.job.id):
        message = f"{spec.job.id!r}: expected a letter, then letters, digits and '_', at most 128"
        yield FieldError(message, field="job.id")
    if not spec.job.region:
        yield FieldError("is missing: every job runs in a region, such as us-central1", field="job.region")
    yield from _role_errors(spec)
    if spec.job.runtime_version:
        if spec.trainer.script is not None:
            yield FieldError("with job.runtime_version, use trainer.module instead", field="trainer.script")
        if not spec.job.package_uris and not options.package_uri:
            yield FieldError(
                "a job with a runtime version needs its package in Cloud Storage",
                field="job.staging",
                hint="set job.staging, such as gs://my-bucket/packages, or job.package_uris",
            )
        minor = minor_of(spec)
        if spec.job.runtime_version != minor:
            yield FieldError(
                f"{spec.job.runtime_version!r} differs from the TensorFlow version {spec.tensorflow}",
                field="job.runtime_version",
                hint=f"set it to {minor}, or change tensorflow",
            )


def _tier_errors(spec: ImageSpec, tier: str) -> Iterator[FieldError]:
    known = read_table("machines/ai_platform.yaml")["tiers"].get(tier, PREFIX.values())
    for role, count in replicas(spec).items():
        if PREFIX[role] not in known:
            yield FieldError(f"the scale tier {tier} has no {role}", field=f"roles.{role}")
        elif count != 1:
            message = f"{count}: the scale tier {tier} decides the count"
            yield FieldError(message, field=f"roles.{role}.count", hint="leave the count out, or use CUSTOM")


def _role_errors(spec: ImageSpec) -> Iterator[FieldError]:
    preset = spec.job.scale_tier and spec.job.scale_tier != "CUSTOM"
    if preset:
        yield from _tier_errors(spec, str(spec.job.scale_tier))
    for role in replicas(spec):
        of_role = spec.roles[role]
        field = f"roles.{role}"
        if preset:
            given = {"machine": of_role.machine, "gpus": of_role.gpus, "tpu": of_role.tpu}
            for key in (key for key, value in given.items() if value is not None):
                yield FieldError(
                    f"works only with the scale tier CUSTOM, not {spec.job.scale_tier}", field=f"{field}.{key}"
                )
        elif machine_of(spec, role) is None:
            yield FieldError(
                f"is missing: {role} needs a machine type", field=f"{field}.machine", hint="for example n1-standard-8"
            )
        if of_role.tpu and of_role.tpu.topology:
            yield FieldError("AI Platform does not support TPU topologies", field=f"{field}.tpu.topology")
        if spec.job.runtime_version and of_role.command is not None:
            yield FieldError("works only with images, not with job.runtime_version", field=f"{field}.command")
        if spec.job.runtime_version and of_role.args is not None:
            yield FieldError("with job.runtime_version, all roles must have the same args", field=f"{field}.args")
