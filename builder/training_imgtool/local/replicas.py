"""Makes replicas from a spec and its images: names, hosts, environment and arguments, as on the target's service.

All functions are pure. docs/run.md lists what each service sets, and which of these settings the service documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from training_imgtool.base.errors import FieldListError, InputError, UsageError
from training_imgtool.base.reference import Digest
from training_imgtool.jobs import JobOptions, job_data
from training_imgtool.jobs.cluster import Flavour, describe_tasks, task_name, to_texts
from training_imgtool.jobs.frameworks import local_flavour, rules_of, says_chief
from training_imgtool.jobs.kubernetes import job_name
from training_imgtool.jobs.launcher import entrypoint, vertex_command
from training_imgtool.jobs.model import (
    NOWHERE,
    args_with_job_dir,
    keeps_nothing,
    leader,
    passed_job_dir,
    replicas,
    results_folder,
)
from training_imgtool.jobs.targets.compose import service_name
from training_imgtool.model.spec import ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

JOB_DIR = "/job"
_LONGEST_LABEL = 63  # RFC 1035: characters between two dots of a host name
_NAMESPACE = "default"


class Service(StrEnum):
    """The service that the cluster imitates (`--as`). `local`: your own machines, with compose or tf-config files."""

    AI_PLATFORM = "ai-platform"
    VERTEX = "vertex"
    TFJOB = "tfjob"
    LOCAL = "local"


def parse_service(text: str) -> Service:
    """Returns the service with this name; raises UsageError if there is none."""
    if text not in list(Service):
        raise UsageError(f"--as {text}: expected {', '.join(Service)}")
    return Service(text)


def target_of(service: Service) -> Target:
    """Returns a target whose jobs the service runs."""
    return Target.COMPOSE if service is Service.LOCAL else Target(service.value)


def service_of(target: Target | None) -> Service:
    """Returns the service on which a target's jobs run; `local` for targets whose TF_CONFIG imgtool itself writes."""
    return Service(target.value) if target is not None and target.value in list(Service) else Service.LOCAL


_GOOGLE = {Service.AI_PLATFORM, Service.VERTEX}
_TRIAL = "1"
_PROXIES = {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"}
_NO_PROXY = ("no_proxy", "NO_PROXY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The description of one container of the cluster, from which the engine creates the container.

    Attributes:
        name: `master`, `worker-0`, …
        task: the role's name in TF_CONFIG.
        host: the replica's stable name in the network; the first label is the container's host name.
        image: a reference by digest, or an image ID.
        args: arguments after the image's entry point.
        command: the job's entry point in place of the image's, or None.
        env: the variables that the service adds to the image's own.
        processes: the number of processes of the program that the command starts; 0 if it is the program itself.
    """

    role: Role
    index: int
    name: str
    task: str
    host: str
    image: str
    args: tuple[str, ...]
    command: tuple[str, ...] | None
    env: Mapping[str, str]
    processes: int = 0

    @property
    def hostname(self) -> str:
        """The host name of the replica's container."""
        return self.host.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All replicas of a run, the chief first. The chief is the master, or worker 0 if the spec has no master.

    Attributes:
        mounts: the paths of the job directory in every container.
        notes: differences from the service that a user should know.
    """

    service: Service
    replicas: tuple[Replica, ...]
    mounts: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def chief(self) -> Replica:
        """The replica whose end is the end of the run."""
        return self.replicas[0]

    @property
    def servers(self) -> tuple[Replica, ...]:
        """The replicas to which other replicas connect when they start.

        With parameter servers, the chief connects to all others (`tf.distribute.ParameterServerStrategy`). Without
        parameter servers, all connect to the chief, which runs TensorFlow's coordination service
        (`tf.distribute.MultiWorkerMirroredStrategy`).
        """
        has_ps = any(replica.role is Role.PS for replica in self.replicas)
        return self.replicas[1:] if has_ps else self.replicas[:1]


def adapt(
    spec: ImageSpec,
    *,
    workers: int | None = None,
    ps: int | None = None,
    processes: int | None = None,
    args: tuple[str, ...] | None = None,
) -> ImageSpec:
    """Changes the numbers of replicas and of their processes, which is 1 by default, and arguments in the spec.

    Raises UsageError for a role that the spec lacks, and for processes that nothing would start.
    """
    roles = _with_processes(spec, processes)
    for role, count in ((Role.WORKER, workers), (Role.PS, ps)):
        if count is None or (count == 0 and role not in roles):
            continue
        if role not in roles:
            raise UsageError(f"--{role}{'s' if role is Role.WORKER else ''} {count}: the spec has no role {role}")
        roles[role] = replace(roles[role], count=count)
    if args is None:
        return replace(spec, roles=roles)
    return replace(spec, args=args, roles={role: replace(of_role, args=None) for role, of_role in roles.items()})


def _with_processes(spec: ImageSpec, processes: int | None) -> dict[Role, RoleSpec]:
    """Returns the roles; the replicas of all but evaluators get `processes`, since this machine may lack their GPUs."""
    if reason := spec.framework.one_process:
        if processes is not None:
            raise UsageError(f"--processes {processes}: {spec.framework.title} {reason}")
        return dict(spec.roles)
    if (processes or 1) > 1 and spec.job.launcher == "python":
        hint = "leave job.launcher out of the spec: torchrun starts the processes"
        raise UsageError(f"--processes {processes}: with job.launcher python, each replica is one process", hint=hint)
    counts = {role: 1 if role is Role.EVALUATOR else processes or 1 for role in spec.roles}
    return {role: replace(of_role, processes=counts[role]) for role, of_role in spec.roles.items()}


def make_cluster(
    spec: ImageSpec, images: Mapping[Role, Digest], service: Service, *, run_images: Mapping[Role, str] | None = None
) -> Cluster:
    """Makes the replicas of a spec.

    Args:
        spec: the spec, adapted to the command line.
        images: the images by digest, as the job file would name them.
        service: the service whose environment the replicas get.
        run_images: maps a role to the reference or image ID that the engine uses instead.

    Raises:
        InputError: there is no chief, or a host name would be too long.
    """
    counts = replicas(spec)
    if leader(spec) is None:
        raise InputError("the cluster has no master and no worker, and the run needs one of them as the chief")
    hosts = hosts_of(spec, images, service)
    job, notes = _job(spec, images, service)
    folder = results_folder(spec) if service is not Service.AI_PLATFORM else None
    # run always has a folder, even if the service would have none; see _notes
    kept = folder if folder and not spec.job.job_dir else JOB_DIR
    always = service is Service.AI_PLATFORM and spec.job.job_dir
    passed = kept if always else passed_job_dir(spec, kept)
    setting = _Setting(spec, service, hosts, job)
    members = tuple(
        Replica(
            role=role,
            index=index,
            name=service_name(role, index),
            task=task_name(setting.flavour, role),
            host=hosts[role][index],
            image=(run_images or {}).get(role) or str(images[role]),
            args=tuple(args_with_job_dir(spec, role, passed)),
            command=_command(spec, role, service) or None,
            env=_env(setting, role, index),
            processes=rules_of(spec.framework).processes(spec, role),
        )
        for role, count in counts.items()
        for index in range(count)
    )
    mounts = (JOB_DIR, *((folder,) if folder else ()))
    return Cluster(service=service, replicas=members, mounts=mounts, notes=(*notes, *_notes(spec, service)))


def _command(spec: ImageSpec, role: Role, service: Service) -> tuple[str, ...]:
    return vertex_command(spec, role) if service is Service.VERTEX else entrypoint(spec, role)


def flavour_of(spec: ImageSpec, service: Service) -> Flavour:
    """Chooses the form of TF_CONFIG that the service sets, with the task `master` or `chief` as in the job file."""
    chief = says_chief(spec)
    match service:
        case Service.AI_PLATFORM:
            if spec.job.chief_in_tf_config is not None:
                chief = spec.job.chief_in_tf_config
            return Flavour.AI_PLATFORM if chief else Flavour.AI_PLATFORM_MASTER
        case Service.VERTEX:
            return Flavour.VERTEX
        case Service.TFJOB:
            return Flavour.TFJOB if chief else Flavour.TFJOB_MASTER
    return local_flavour(spec)


def hosts_of(spec: ImageSpec, images: Mapping[Role, Digest], service: Service) -> dict[Role, tuple[str, ...]]:
    """Returns each role's host names in the service's format; raises InputError if a name is too long."""
    flavour = flavour_of(spec, service)
    pools = {role: f"workerpool{number}" for number, role in enumerate(Role)}

    def host(role: Role, index: int) -> str:
        match service:
            case Service.AI_PLATFORM:
                return f"cmle-training-{task_name(flavour, role)}-{_stable_id(spec)}-{index}"
            case Service.VERTEX:
                return f"cmle-training-{pools[role]}-{_stable_id(spec)}-{index}"
            case Service.TFJOB:
                pod = f"{job_name(spec, images)}-{task_name(flavour, role)}-{index}"
                return f"{pod}.{spec.job.namespace or _NAMESPACE}.svc"
        return service_name(role, index)

    hosts = {role: tuple(host(role, index) for index in range(count)) for role, count in replicas(spec).items()}
    longest = max((name.partition(".")[0] for names in hosts.values() for name in names), key=len, default="")
    if len(longest) > _LONGEST_LABEL:
        raise InputError(
            f"the host name {longest!r} has {len(longest)} characters: expected {_LONGEST_LABEL} at most",
            hint="shorten the spec's name, or set a shorter job.id",
        )
    return hosts


def _stable_id(spec: ImageSpec) -> str:
    """Returns ten characters in place of an ID that the service chooses; they are the same in every run of the spec."""
    return hashlib.sha256(f"{spec.name} {spec.job.id or ''}".encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class _Setting:
    """The inputs that the environments of all replicas share."""

    spec: ImageSpec
    service: Service
    hosts: Mapping[Role, tuple[str, ...]]
    job: Mapping[str, Any] | None

    @property
    def flavour(self) -> Flavour:
        return flavour_of(self.spec, self.service)


def _env(setting: _Setting, role: Role, index: int) -> dict[str, str]:
    spec, service = setting.spec, setting.service
    env = {} if service is Service.AI_PLATFORM else dict(spec.job.env)
    if service is Service.VERTEX:
        env |= {
            "AIP_MODEL_DIR": f"{JOB_DIR}/model/",
            "AIP_CHECKPOINT_DIR": f"{JOB_DIR}/checkpoints/",
            "AIP_TENSORBOARD_LOG_DIR": f"{JOB_DIR}/logs/",
        }
    if service in _GOOGLE:
        env |= _google_env(spec, service)
    cloud = _stable_id(spec) if service is Service.AI_PLATFORM else None
    trial = _TRIAL if service is Service.VERTEX and spec.job.hyperparameters else None
    of_service = describe_tasks if service is Service.VERTEX else partial(rules_of(spec.framework).describe, spec)
    told = of_service(setting.flavour, setting.hosts, role, index, job=setting.job, trial=trial, cloud=cloud)
    return env | to_texts(told) | _reach_replicas(setting, role, env)


def _reach_replicas(setting: _Setting, role: Role, env: Mapping[str, str]) -> dict[str, str]:
    """Returns variables that make gRPC connect to other replicas directly, even if the spec sets a proxy."""
    given = {**setting.spec.env, **setting.spec.roles[role].env, **env}
    if not any(name.lower() in _PROXIES for name in given):
        return {}
    hosts = [name for of_role in setting.hosts.values() for host in of_role for name in {host, host.partition(".")[0]}]
    without = ",".join(dict.fromkeys((*(given[name] for name in _NO_PROXY if given.get(name)), *hosts)))
    return dict.fromkeys(_NO_PROXY, without)


def _google_env(spec: ImageSpec, service: Service) -> dict[str, str]:
    """Returns variables for the job's ID and, in a tuning job, for the trial's number and cloudml-hypertune's file."""
    env = {"CLOUD_ML_JOB_ID": _stable_id(spec)}
    if service is Service.VERTEX and spec.job.hyperparameters:
        env |= {"CLOUD_ML_TRIAL_ID": _TRIAL, "CLOUD_ML_HP_METRIC_FILE": "/tmp/hypertune/output.metrics"}  # noqa: S108
    if service is Service.VERTEX and spec.job.tensorboard:
        env["AIP_TENSORBOARD_RESOURCE_NAME"] = spec.job.tensorboard
    return env


def _job(
    spec: ImageSpec, images: Mapping[Role, Digest], service: Service
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Returns the value of `job` in the service's TF_CONFIG, and a note if the service would refuse the spec."""
    if service not in {Service.AI_PLATFORM, Service.VERTEX}:
        return None, ()
    try:
        job = job_data(spec, images, target_of(service), JobOptions(allow_unknown=True))
    except FieldListError as refused:
        first = str(refused.errors[0])
        return None, (f"no `job` in TF_CONFIG, since {service} would refuse the spec: {first}",)
    if service is Service.AI_PLATFORM:
        return dict(job.documents[0]["trainingInput"]), ()
    return dict((job.api or {}).get("jobSpec") or job.documents[0]), ()


def _notes(spec: ImageSpec, service: Service) -> tuple[str, ...]:
    notes = []
    everywhere = {**spec.env, **spec.job.env, **{name: "" for role in replicas(spec) for name in spec.roles[role].env}}
    if any(name.lower() in _PROXIES for name in everywhere):
        notes.append(
            "a proxy is in env: imgtool run adds the replicas to NO_PROXY, but a job's replicas would connect to each"
            " other through the proxy and hang, so name their hosts in no_proxy"
        )
    if missing := [each.mount for each in spec.job.volumes if not each.memory and each.mount != results_folder(spec)]:
        notes.append(f"this run does not mount these volumes of the job: {', '.join(missing)}")
    if service is Service.AI_PLATFORM and spec.job.env:
        notes.append("job.env is not set: AI Platform cannot set environment variables")
    if service is Service.VERTEX and spec.job.hyperparameters:
        notes.append("this is trial 1 without its parameters, which the service appends; give them after --")
    is_told = spec.job.pass_job_dir or (service is Service.AI_PLATFORM and spec.job.job_dir)
    untold = "" if is_told else "without job.pass_job_dir: true in the spec, trainers get no --job-dir; "
    if (spec.job.target or service is not Service.LOCAL) and keeps_nothing(spec):
        notes.append(f"{NOWHERE}; {untold}in this run, {JOB_DIR} stays")
    elif untold:
        notes.append(f"{untold}the job directory is at {JOB_DIR}")
    return tuple(notes)
