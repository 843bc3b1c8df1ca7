"""Makes an ImageSpec for Vertex AI from an AI Platform Job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from training_imgtool.base.errors import FieldError, FieldListError
from training_imgtool.base.reference import Digest, Tag, parse_reference
from training_imgtool.jobs.conversion.machines import expand_machines
from training_imgtool.jobs.model import Document, count_of, get, plain, without_none
from training_imgtool.jobs.service import KEY
from training_imgtool.jobs.targets.ai_platform import PREFIX
from training_imgtool.jobs.yamlio import to_yaml
from training_imgtool.model.job import Hyperparameters, JobSpec, Parameter, Scheduling
from training_imgtool.model.spec import Disk, Gpus, ImageSpec, Role, RoleSpec, Trainer
from training_imgtool.model.targets import Target

_LOST = {
    "etag": "it belongs to a patch of an existing job",
    "trainingInput.pythonVersion": "imgtool chooses the Python that fits TensorFlow",
    "trainingInput.packageUris": "the images contain the trainer's folder instead",
    "trainingInput.scheduling.maxWaitTime": "on Vertex AI it applies only with FLEX_START",
    "trainingInput.scheduling.priority": "Vertex AI has no priorities",
    "trainingInput.useChiefInTfConfig": "TF_CONFIG always has chief on Vertex AI",
}
_TUNING = {  # the API's keys, and the spec's
    "goal": "goal",
    "hyperparameterMetricTag": "metric",
    "maxTrials": "max_trials",
    "maxParallelTrials": "max_parallel_trials",
    "maxFailedTrials": "max_failed_trials",
    "algorithm": "algorithm",
    "enableTrialEarlyStopping": "early_stopping",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldRole(RoleSpec):
    """A role whose command runs in the old Job's image. imgtool adds no init, because the image may not contain one."""

    @property
    def entrypoint(self) -> tuple[str, ...]:
        return self.command or ()


def make_spec(job: Document, name: str, releases: Mapping[str, str]) -> tuple[ImageSpec, tuple[str, ...]]:
    """Makes a spec from a Job, and notes on the parts of the Job that the spec leaves out.

    Args:
        job: the Job, as `read_job` returns it.
        name: the spec's name.
        releases: the newest TensorFlow release of each minor that imgtool builds.

    Raises:
        FieldListError: every part of the Job that Vertex AI does not support.
    """
    errors = tuple(_refusals(job["trainingInput"], releases))
    if errors:
        raise FieldListError(errors)
    training, notes = expand_machines(job["trainingInput"])
    module = training.get("pythonModule", "trainer.task")
    spec = ImageSpec(
        name=name,
        tensorflow=releases.get(_minor(training), next(iter(releases.values()))),  # images of a job contain theirs
        trainer=Trainer(source=module.partition(".")[0], module=module),
        args=tuple(training.get("args", ())),
        roles=dict(_roles(training)),
        job=_job(job, training),
    )
    if "runtimeVersion" in training:
        notes.append(f"note: the runtime {training['runtimeVersion']} becomes images with TensorFlow {spec.tensorflow}")
    notes += [f"note: {field}: {why}" for field, why in _LOST.items() if get(job, *field.split(".")) not in (None, [])]
    return spec, tuple(notes)


def spec_text(spec: ImageSpec) -> str:
    """Writes the image.yaml of a spec: the keys whose values are not the default."""
    return to_yaml(plain(spec))


def images_of(job: Document) -> dict[Role, Digest | Tag]:
    """Returns the image of each role that runs; a role without an image uses the master's."""
    training = job["trainingInput"]
    given = {role: get(training, f"{prefix}Config", "imageUri") for role, prefix in PREFIX.items()}
    default = given[Role.MASTER]
    return {role: parse_reference(image or default) for role, image in given.items() if image or default}


def _job(job: Document, training: Document) -> JobSpec:
    job_dir, longest = training.get("jobDir"), get(training, "scheduling", "maxRunningTime")
    tuning = training.get("hyperparameters")
    return JobSpec(
        target=Target.VERTEX,
        id=job.get("jobId"),
        labels={key: value for key, value in job.get("labels", {}).items() if key != KEY},
        region=training["region"],
        job_dir=job_dir,
        pass_job_dir=bool(job_dir),
        network=training.get("network"),
        service_account=training.get("serviceAccount"),
        web_access=training.get("enableWebAccess"),
        encryption_key=get(training, "encryptionConfig", "kmsKeyName"),
        scheduling=Scheduling(max_running=longest) if longest else None,
        hyperparameters=_tuning(tuning) if tuning else None,
    )


def _roles(training: Document) -> Iterator[tuple[Role, RoleSpec]]:
    for role, prefix in PREFIX.items():
        count = 1 if role is Role.MASTER else count_of(training.get(f"{prefix}Count"))
        config = training.get(f"{prefix}Config", {})
        chip, disk = config.get("acceleratorConfig"), config.get("diskConfig")
        own = config.get("containerArgs")
        kind = _OldRole if config.get("containerCommand") else RoleSpec
        if count:
            yield (
                role,
                kind(
                    count=count,
                    machine=training.get(f"{prefix}Type"),
                    gpus=Gpus(type=chip["type"], count=count_of(chip.get("count")) or 1) if chip else None,
                    disk=Disk(type=disk.get("bootDiskType"), size_gb=disk.get("bootDiskSizeGb")) if disk else None,
                    args=tuple(own) if own else None,
                    command=tuple(config["containerCommand"]) if config.get("containerCommand") else None,
                ),
            )


def _tuning(tuning: Document) -> Hyperparameters:
    made = {here: tuning[there] for there, here in _TUNING.items() if tuning.get(there)}  # 0 is the API's default
    if made.get("algorithm") == "ALGORITHM_UNSPECIFIED":
        del made["algorithm"]
    return Hyperparameters(**made, params=tuple(_parameter(param) for param in tuning["params"]))


def _parameter(param: Document) -> Parameter:
    low, high, scale = param.get("minValue"), param.get("maxValue"), param.get("scaleType")
    values = param.get("categoricalValues") or param.get("discreteValues") or []
    return Parameter(
        name=param["parameterName"],
        type=param["type"],
        min=None if low is None else str(low),
        max=None if high is None else str(high),
        scale=None if scale == "NONE" else scale,
        values=tuple(str(value) for value in values),
    )


def _minor(training: Document) -> str:
    return ".".join(training.get("runtimeVersion", "").split(".")[:2])


def _refusals(training: Document, releases: Mapping[str, str]) -> Iterator[FieldError]:
    images = [prefix for prefix in PREFIX.values() if get(training, f"{prefix}Config", "imageUri")]
    version = training.get("runtimeVersion")
    if images and "master" not in images:
        yield FieldError("is missing: pool 0 needs an image", field="trainingInput.masterConfig.imageUri")
    elif not images and version is None:
        hint = "--flags '--runtime-version 2.11' gives it"
        yield FieldError("is missing: it decides TensorFlow's version", field="trainingInput.runtimeVersion", hint=hint)
    elif not images and _minor(training) not in releases:
        message = f"imgtool builds no TensorFlow {version}: expected {min(releases)} to {[*releases][-1]}"
        hint = "--flags '--runtime-version 2.11' takes another"
        yield FieldError(message, field="trainingInput.runtimeVersion", hint=hint)
    if not training.get("region"):
        message, hint = "is missing: a job runs in a region", "--region us-central1"
        yield FieldError(message, field="trainingInput.region", hint=hint)
    if get(training, "hyperparameters", "resumePreviousJobId"):
        field = "trainingInput.hyperparameters.resumePreviousJobId"
        yield FieldError("Vertex AI cannot continue the trials of another job", field=field)
    for prefix in PREFIX.values():
        own = without_none(training.get(f"{prefix}Config", {}))
        for key in [key for key in ("containerCommand", "containerArgs") if key in own and not images]:
            yield FieldError("needs an image, but this job has none", field=f"trainingInput.{prefix}Config.{key}")
    tpus = [f"trainingInput.{prefix}Type" for prefix in PREFIX.values() if training.get(f"{prefix}Type") == "cloud_tpu"]
    tpus += ["trainingInput.scaleTier"] if training.get("scaleTier") == "BASIC_TPU" else []
    if tpus:
        message = "a TPU beside a CPU master does not carry over: a TPU job on Vertex AI is one TPU VM"
        yield FieldError(message, field=tpus[0], hint="docs/jobs/vertex.md, A TPU VM")
