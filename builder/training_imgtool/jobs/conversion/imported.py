"""A job file of Kubernetes, Google's services, SkyPilot or Compose as the roles and the job of an image.yaml.

Every key that is understood is taken out of the document, so what is left at the end is what the spec does not say,
and is named.
"""

from __future__ import annotations

import copy
import re
import shlex
from dataclasses import dataclass
from typing import Any

from training_imgtool.core.errors import InputError
from training_imgtool.jobs import launcher
from training_imgtool.jobs.conversion.kubernetes import read_batch_job, read_jobset, read_tfjob
from training_imgtool.jobs.conversion.source import (
    OWN_VARIABLES,
    ROLES,
    Source,
    as_text,
    plain_text,
    unescaped,
    with_times,
    without_empty,
)
from training_imgtool.jobs.model import KEY, Document, count_of, without_none
from training_imgtool.jobs.rules.ai_platform import PREFIXES
from training_imgtool.jobs.yamlio import read, to_yaml
from training_imgtool.spec.model import Role
from training_imgtool.spec.targets import Target

_PARAM = {
    "parameterName": "name", "type": "type", "minValue": "min", "maxValue": "max", "scaleType": "scale",
}  # fmt: skip
_TUNING = {
    "goal": "goal",
    "hyperparameterMetricTag": "metric",
    "maxTrials": "max_trials",
    "maxParallelTrials": "max_parallel_trials",
    "maxFailedTrials": "max_failed_trials",
    "algorithm": "algorithm",
    "enableTrialEarlyStopping": "early_stopping",
    "resumePreviousJobId": "resume_from",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An image.yaml without its TensorFlow, which no job file names.

    Attributes:
        document: its data.
        lost: the keys of the file that it does not say.
    """

    document: Document
    lost: tuple[str, ...]

    def text(self, tensorflow: str) -> str:
        """Writes the image.yaml."""
        return to_yaml({"name": self.document["name"], "tensorflow": tensorflow, **self.document})


def import_job(text: str, file: str, *, region: str | None = None) -> Imported | None:
    """Reads a job file of a kind that becomes a spec; None for any other.

    Args:
        text: the file's text.
        file: its name, for messages.
        region: for files of Google's services that leave it to a flag.

    Raises:
        InputError: the text is not YAML, or its replicas are not roles of TensorFlow.
    """
    documents = [parsed.data for parsed in read(text, file) if parsed.data is not None]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        return None
    source = Source(copy.deepcopy(documents[0]))
    kinds = {"TFJob": read_tfjob, "JobSet": read_jobset, "Job": read_batch_job}
    try:
        if source.at("kind") in kinds:
            return _imported(*kinds[source.take("kind")](source))
        if "workerPoolSpecs" in source.data or "jobSpec" in source.data:
            return _vertex(source, region)
        if "trainingInput" in source.data:
            return read_training(source, region)
        if {"run", "resources"} <= source.data.keys():
            return _skypilot(source)
        return _compose(source) if "services" in source.data else None
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        message = f"{file}: not a job file that imgtool can read; imgtool lint {file} says what is wrong with it"
        raise InputError(message) from error


def _imported(
    source: Source,
    name: str | None,
    target: Target,
    roles: dict[Role, Document],
    job: Document,
    *,
    own_args: bool = False,
) -> Imported:
    """Puts arguments that all roles have in common where the spec has them once, unless the file does not."""
    if not roles:
        raise InputError("the file has no role of TensorFlow: expected chief or master, worker, ps, evaluator")
    args = [role.get("args") or [] for role in roles.values()]
    common = args[0] if all(item == args[0] for item in args) and not own_args else None
    for role, of_role in roles.items():
        if common is not None:
            of_role.pop("args", None)
        else:
            of_role.setdefault("args", [])
        if role is Role.MASTER:
            of_role.pop("count", None)
    ordered = {role.value: without_empty(roles[role]) for role in Role if role in roles}
    spec = {
        "name": name or "imported",
        "args": common or None,
        "roles": ordered,
        "job": {"target": target.value, **job},
    }
    return Imported(document=without_none(spec), lost=source.left())


def _vertex(source: Source, region: str | None) -> Imported:
    job: Document = {"display_name": source.take("displayName"), "labels": source.take("labels") or {}}
    job["region"] = region
    job["labels"].pop(KEY, None)
    job["encryption_key"] = source.take("encryptionSpec", "kmsKeyName")
    of = source.sub("jobSpec") if "jobSpec" in source.data else source
    names = {"timeout": "max_running", "maxWaitDuration": "max_wait", "disableRetries": "disable_retries"}
    names |= {"restartJobOnWorkerRestart": "restart_on_worker_restart", "strategy": "strategy"}
    times = {key: of.take("scheduling", name) for name, key in names.items()}
    job["job_dir"] = of.take("baseOutputDirectory", "outputUriPrefix")
    for name, key in {
        "serviceAccount": "service_account", "network": "network", "reservedIpRanges": "reserved_ip_ranges",
        "tensorboard": "tensorboard", "enableWebAccess": "web_access", "enableDashboardAccess": "dashboard_access",
        "persistentResourceId": "persistent_resource",
    }.items():  # fmt: skip
        job[key] = of.take(name)
    job["network_attachment"] = of.take("pscInterfaceConfig", "networkAttachment")
    roles = {}
    for index, role in zip(range(len(of.at("workerPoolSpecs") or [])), Role, strict=False):
        pool = of.sub("workerPoolSpecs", index)
        count = count_of(pool.take("replicaCount"))
        if not pool.data or count == 0:
            of.at("workerPoolSpecs")[index] = None
            continue
        roles[role] = {"count": 1 if count is None else count, **_pool(pool, job)}
    return _imported(source, job["display_name"], Target.VERTEX, roles, with_times(job, times))


def _pool(pool: Source, job: Document) -> Document:
    box, machine = pool.sub("containerSpec"), pool.sub("machineSpec")
    box.take("imageUri")
    env = {item["name"]: re.sub(r"\$\$(?=[$(])", "$", item.get("value", "")) for item in box.take("env") or []}
    job["env"] = env
    kind, count = machine.take("acceleratorType"), machine.take("acceleratorCount")
    topology = machine.take("tpuTopology")
    # Of a TPU, the machine and its topology may say which; the type is not written then.
    chip = without_none({"type": kind or "TPU_V5_LITEPOD", "count": count, "topology": topology})
    is_tpu = topology is not None or str(kind).startswith("TPU_")
    affinity = machine.take("reservationAffinity") or {}
    kinds = {"ANY_RESERVATION": "any", "NO_RESERVATION": "none"}
    named = kinds.get(str(affinity.get("reservationAffinityType")), next(iter(affinity.get("values") or []), None))
    for mount in list(pool.at("nfsMounts") or []):
        made = {"mount": f"/mnt/nfs/{mount['mountPoint']}", "nfs_server": mount["server"], "nfs_path": mount["path"]}
        if job.setdefault("volume", made) == made:
            pool.at("nfsMounts").remove(mount)
    disk = without_none(
        {"type": pool.take("diskSpec", "bootDiskType"), "size_gb": pool.take("diskSpec", "bootDiskSizeGb")}
    )
    return {
        "machine": machine.take("machineType"),
        "tpu": chip if is_tpu else None,
        "gpus": chip if kind and not is_tpu else None,
        "disk": disk,
        "reservation": named,
        "command": box.take("command"),
        "args": box.take("args") or [],
    }


def read_training(source: Source, region: str | None) -> Imported:
    """Reads a Job of AI Platform."""
    of = source.sub("trainingInput")
    job: Document = {"id": source.take("jobId"), "labels": source.take("labels") or {}, "region": of.take("region")}
    key = job["labels"].pop(KEY, None)
    name = str(job["id"] or "imported").removesuffix(f"_{key}")
    if key and job["id"] == f"{name}_{key}":
        job["id"] = None
    job["region"] = region or job["region"]
    for there, here in {
        "jobDir": "job_dir", "network": "network", "serviceAccount": "service_account", "enableWebAccess": "web_access",
        "useChiefInTfConfig": "chief_in_tf_config", "runtimeVersion": "runtime_version",
        "pythonVersion": "python_version", "packageUris": "package_uris",
    }.items():  # fmt: skip
        job[here] = of.take(there)
    job["encryption_key"] = of.take("encryptionConfig", "kmsKeyName")
    job["hyperparameters"] = _tuning(tuned) if (tuned := of.take("hyperparameters")) else None
    names = {"maxWaitTime": "max_wait", "maxRunningTime": "max_running", "priority": "priority"}
    times = {here: of.take("scheduling", there) for there, here in names.items()}
    tier, module = of.take("scaleTier"), of.take("pythonModule")
    job["scale_tier"] = None if tier == "CUSTOM" else tier
    args = [str(arg) for arg in of.take("args") or []]
    configs = [of.at(f"{prefix}Config") or {} for prefix in PREFIXES]
    own_args = any({"containerCommand", "containerArgs"} & config.keys() for config in configs)
    roles = {}
    for role, prefix in zip(Role, PREFIXES, strict=True):
        config = of.sub(f"{prefix}Config")
        count = 1 if role is Role.MASTER else count_of(of.take(f"{prefix}Count"))
        if count or (count is None and config.data and tier != "CUSTOM"):
            roles[role] = {"count": count or 1, **_replica(config, of.take(f"{prefix}Type"), args)}
    title, job = re.sub(r"[^a-z0-9]+", "-", name.lower()), with_times(job, times)
    made = _imported(source, title, Target.AI_PLATFORM, roles, job, own_args=own_args)
    if module:
        made.document["trainer"] = {"source": module.partition(".")[0], "module": module}
    return made


def _replica(config: Source, machine: Any, args: list[str]) -> Document:
    config.take("imageUri")
    chip = {"type": config.take("acceleratorConfig", "type"), "count": config.take("acceleratorConfig", "count")}
    chip = without_none({**chip, "count": count_of(chip["count"])})
    version, is_tpu = config.take("tpuTfVersion"), machine == "cloud_tpu"
    disk = {"type": config.take("diskConfig", "bootDiskType"), "size_gb": config.take("diskConfig", "bootDiskSizeGb")}
    own = config.take("containerArgs")
    return {
        "machine": machine if not is_tpu or not chip else None,
        "tpu": without_none({**chip, "tf_version": version}) if is_tpu and chip else None,
        "accelerator": "tpu" if version or is_tpu else None,
        "gpus": chip if chip and not is_tpu else None,
        "disk": without_none(disk),
        "command": config.take("containerCommand"),
        "args": args if own is None else own,
    }


def _skypilot(source: Source) -> Imported:
    of, name = source.sub("resources"), source.take("name")
    of.take("image_id")
    labels = of.take("labels") or {}
    key = labels.pop(KEY, None)
    title = str(name or "imported").removesuffix(f"-{key}")  # whether it was an id, the name does not tell
    count = source.take("num_nodes") or 1
    own = {launcher.TASKS, launcher.VARIABLE}
    env = {name: str(value) for name, value in (source.take("envs") or {}).items() if name not in own}
    job = {"infra": of.take("infra"), "labels": labels, "env": env}
    chip, _, number = str(of.take("accelerators") or "").partition(":")
    memory = of.take("memory")
    role: Document = {
        "count": count,
        "machine": of.take("instance_type"),
        "cpus": as_text(of.take("cpus")),
        "memory": f"{memory}Gi" if memory else None,
        "gpus": {"type": chip, "count": int(number or 1)} if chip else None,
        "disk": without_none({"size_gb": of.take("disk_size")}),
    }
    program, module = _program(str(source.take("run")))
    times = {"strategy": "SPOT" if of.take("use_spot") else None}
    role |= {"args": program} if module else {"command": program, "args": []}
    roles = {Role.WORKER if count > 1 else Role.MASTER: role}
    made = _imported(source, title, Target.SKYPILOT, roles, with_times(job, times))
    if module:
        made.document["trainer"] = {"source": module.partition(".")[0], "module": module}
    return made


def _program(run: str) -> tuple[list[str], str | None]:
    """Reads what a task runs: the arguments of a module that the images' Python runs, else the whole command."""
    words = shlex.split(run) if run.startswith("exec ") else ["exec", "bash", "-c", run]
    words = words[7:] if words[1:4] == [launcher.PYTHON, "-c", f"${launcher.VARIABLE}"] else words[1:]
    return (words[3:], words[2]) if words[:2] == [launcher.PYTHON, "-m"] else (words, None)


def _compose(source: Source) -> Imported:
    project, services = source.take("name"), source.at("services")
    job: Document = {"id": project}
    roles: dict[Role, Document] = {}
    times: Document = {}
    alone = len(services) == 1
    for name in list(services):
        match = re.fullmatch(r"([a-z]+)-?[0-9]*", name)
        role = ROLES.get(match[1] if match else "") or (Role.MASTER if alone else None)
        if role is None:
            continue  # all of it is named as lost
        made = _service(source.sub("services", name), name, source, job, times)
        if role in roles and {**roles[role], "count": 1} != {**made, "count": 1}:
            raise InputError(f"services.{name} differs from the other {role}: replicas of a role are alike")
        roles[role] = {**made, "count": roles[role]["count"] + 1 if role in roles else 1}
    key = job.pop("key", None)
    if key and str(project).endswith(f"-{key}"):
        job["id"], project = None, str(project).removesuffix(f"-{key}")
    return _imported(source, project, Target.COMPOSE, roles, with_times(job, times))


def _service(of: Source, name: str, source: Source, job: Document, times: Document) -> Document:
    of.take("image")
    of.drop(name, "hostname")
    of.drop(["2222"], "expose")
    of.drop("no", "restart")
    if match := re.fullmatch(r"on-failure:([0-9]+)", str(of.at("restart"))):
        times["restarts"] = int(match[1])
        of.take("restart")
    labels = of.take("labels") or {}
    job["key"] = labels.pop(KEY, None)
    job["labels"] = labels
    env = of.take("environment") or {}
    pairs = env if isinstance(env, dict) else dict(item.split("=", 1) if "=" in item else (item, None) for item in env)
    given = {key: value for key, value in pairs.items() if value is not None}
    job["env"] = {key: plain_text(str(value)) for key, value in given.items() if key not in OWN_VARIABLES}
    of.data["environment"] = {key: "" for key in pairs if key not in given}  # from the shell of whoever runs Compose
    for mount in list(of.at("volumes") or []):
        outer, _, inner = str(mount).partition(":")
        volume = source.at("volumes", outer) or {}
        options = volume.get("driver_opts", {})
        if inner == "/job":
            job["job_dir"] = outer.removeprefix("./")
        elif volume.get("external") or options.get("type") == "nfs":
            nfs = {"nfs_server": options.get("o", "").removeprefix("addr=").partition(",")[0] or None}
            path = str(options.get("device", "")).removeprefix(":") or None
            job["volume"] = without_none({"mount": inner, "claim": volume.get("name"), **nfs, "nfs_path": path})
        else:
            continue
        of.at("volumes").remove(mount)
    devices = of.take("deploy", "resources", "reservations", "devices") or []
    limits = of.sub("deploy", "resources", "limits")
    command, args = (unescaped(of.take(key)) for key in ("entrypoint", "command"))
    gpus = next((item.get("count") for item in devices), None)
    if source.at("volumes") and "volume" in job:
        source.at("volumes").pop("results", None) if _last(source, name) else None
    return without_empty({
        "command": command or None, "args": args,
        "cpus": as_text(limits.take("cpus")), "memory": _size(limits.take("memory")),
        "gpus": {"type": "any", "count": gpus} if isinstance(gpus, int) else None,
    })  # fmt: skip


def _last(source: Source, name: str) -> bool:
    return bool(list(source.at("services"))[-1] == name)


def _size(text: Any) -> str | None:
    match = re.fullmatch(r"([0-9]+)([gmk])", str(text))
    return f"{match[1]}{match[2].upper()}i" if match else as_text(text)


def _tuning(tuning: Document) -> Document:
    made = {here: tuning[there] for there, here in _TUNING.items() if tuning.get(there)}  # 0 is the API's default
    if made.get("algorithm") == "ALGORITHM_UNSPECIFIED":
        del made["algorithm"]
    return {**made, "params": [_param(param) for param in tuning["params"]]}


def _param(param: Document) -> Document:
    made = {here: str(param[there]) for there, here in _PARAM.items() if there in param}
    if made.get("scale") == "NONE":
        del made["scale"]
    values = param.get("categoricalValues") or param.get("discreteValues")
    return {**made, "values": [str(value) for value in values]} if values else made
