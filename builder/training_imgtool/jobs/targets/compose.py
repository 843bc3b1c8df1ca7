"""Docker Compose: the cluster on one machine, with a service per replica.

Source: the Compose specification.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs import launcher
from training_imgtool.jobs.cluster import PORT, to_texts
from training_imgtool.jobs.frameworks import local_flavour, rules_of
from training_imgtool.jobs.kubernetes import is_cluster, shares_memory
from training_imgtool.jobs.model import (
    Document,
    Finding,
    Images,
    JobFile,
    JobOptions,
    Path,
    args_with_job_dir,
    get,
    image_of,
    job_key,
    leader,
    passed_job_dir,
    replicas,
    results_folder,
    size_errors,
    without_none,
)
from training_imgtool.jobs.rules.images import image_findings
from training_imgtool.jobs.rules.ranks import UNKNOWN, Machines, rank_findings
from training_imgtool.jobs.rules.schemas import published_findings
from training_imgtool.jobs.service import KEY, Service, Standing, read_objects
from training_imgtool.model.job import Volume
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

_JOB_DIR = "/job"
_SHARED = "2Gi"  # as much as Kubeflow Arena gives every training job
_MEMORY = re.compile(r"(?P<number>[0-9]+)(?P<unit>Ki|Mi|Gi|[bkmgBKMG]?)\Z")
_CPUS = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<milli>m?)\Z")
_COMPOSE = "Compose specification"
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+\Z")  # one letter is a drive of Windows
_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]*\Z")


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Finds every reason why the spec cannot be a Compose file."""
    return list(_errors(spec, _project(spec, images)))


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the Compose file of a spec in which `check` found no error."""
    chief, compose = service_name(leader(spec) or Role.MASTER, 0), f"docker compose --file {shlex.quote(options.file)}"
    document = without_none(
        {
            "name": _project(spec, images),
            "services": {
                service_name(role, index): _service(spec, images, role, index)
                for role, count in replicas(spec).items()
                for index in range(count)
            },
            "volumes": _volumes(spec),
            "secrets": {name: {"environment": name} for name in spec.job.secrets},
        }
    )
    return JobFile(
        target=Target.COMPOSE,
        documents=(document,),
        command=("docker", "compose", "--file", options.file, "up", "--detach"),
        header=(
            f"The exit code of {chief}, and the end of the others with it; their logs stay:",
            f"  (code=$(docker wait $({compose} ps --all --quiet {chief})); {compose} stop; exit $code)",
        ),
        service=_service_of(_project(spec, images), job_key(images, spec), options.file, list(document["services"])),
    )


def _service_of(name: str, key: str, file: str, services: list[str]) -> Service:
    compose = ("docker", "compose", "--file", file)
    return Service(
        name=name,
        key=key,
        find=(*compose, "ps", "--all", "--format", "json"),
        read=lambda text: _standing(text, name, services),
        watch=(*compose, "ps", "--all"),
        logs=(*compose, "logs", "--follow"),
        stop=(*compose, "down"),
        end=(*compose, "stop"),
    )


def _standing(text: str, name: str, services: list[str]) -> Standing | None:
    """Reads the output of `docker compose ps`; the first name in `services` is the chief's."""
    of = {row["Service"]: row for row in read_objects(text)}
    if not of:
        return None
    chief = of.get(services[0], {"State": "incomplete"})
    ended, code = chief["State"] in {"exited", "dead"}, chief.get("ExitCode")
    keys = {match[1] for row in of.values() if (match := re.search(rf"(?:^|,){KEY}=(\w+)", row["Labels"]))}
    return Standing(
        name=name,
        state=chief["State"],
        key=keys.pop() if len(keys) == 1 else None,
        succeeded=code == 0 if ended else None,
        code=code if ended else None,
        whole=set(services) <= {key for key, row in of.items() if row["State"] != "created"},
    )


def service_name(role: Role, index: int) -> str:
    """Returns the name of a replica's service and host, such as `worker-0`."""
    return "master" if role is Role.MASTER else f"{role}-{index}"


def memory(text: str) -> str:
    """Writes an amount of memory for Docker: `16Gi` becomes `16g`."""
    match = _MEMORY.match(text)
    return f"{match['number']}{match['unit'][:1].lower() or 'b'}" if match else text


def cpus(text: str) -> str:
    """Writes a number of CPUs for Docker: `500m` becomes `0.5`."""
    match = _CPUS.match(text)
    return f"{float(match['number']) / 1000:g}" if match and match["milli"] else text


def shared_memory(spec: ImageSpec, role: Role) -> str | None:
    """Returns the size of a replica's /dev/shm: its memory, which contains it; None for Docker's default."""
    if not shares_memory(spec):
        return None
    return memory(spec.roles[role].memory or _SHARED)


def is_folder(job_dir: str | None) -> bool:
    """Tells whether the job directory is a folder on this machine rather than a URL."""
    return job_dir is not None and "://" not in job_dir


def _service(spec: ImageSpec, images: Images, role: Role, index: int) -> Document:
    job = spec.job
    restarts = job.scheduling.restarts if job.scheduling else None
    own = is_folder(job.job_dir)
    mounted = passed_job_dir(spec, _JOB_DIR if own else job.job_dir or results_folder(spec))
    mounts: list[str | Document] = [f"{_relative(str(job.job_dir))}:{_JOB_DIR}"] if own else []
    mounts += [_mount(volume, index) for index, volume in enumerate(job.volumes)]
    command = launcher.with_secrets(spec, role, launcher.SECRETS) if job.secrets else launcher.entrypoint(spec, role)
    return without_none(
        {
            "image": image_of(images, role),
            "hostname": service_name(role, index),
            "entrypoint": [_literal(word) for word in command],
            "command": [_literal(arg) for arg in args_with_job_dir(spec, role, mounted)],
            "environment": _environment(spec, role, index),
            "shm_size": shared_memory(spec, role),
            "expose": [str(PORT)] if is_cluster(spec) else [],
            "volumes": mounts,
            "secrets": list(job.secrets),
            "labels": dict(job.labels),
            "deploy": _deploy(spec, role),
            "restart": f"on-failure:{restarts}" if restarts else "no",
            "stop_grace_period": f"{job.grace_period}s" if job.grace_period else None,
        }
    )


def _environment(spec: ImageSpec, role: Role, index: int) -> Document:
    env = {key: _literal(value) for key, value in spec.job.env.items()}
    if not is_cluster(spec):
        return env
    hosts = {r: [service_name(r, i) for i in range(count)] for r, count in replicas(spec).items()}
    told = rules_of(spec.framework).describe(spec, local_flavour(spec), hosts, role, index)
    return env | {key: _literal(value) for key, value in to_texts(told).items()}


def _deploy(spec: ImageSpec, role: Role) -> Document | None:
    of_role = spec.roles[role]
    limits = without_none(
        {
            "cpus": cpus(of_role.cpus) if of_role.cpus else None,
            "memory": memory(of_role.memory) if of_role.memory else None,
        }
    )
    gpus = of_role.gpus
    devices = [{"driver": "nvidia", "count": gpus.count, "capabilities": ["gpu"]}] if gpus else []
    resources = without_none({"limits": limits, "reservations": {"devices": devices} if devices else None})
    return {"resources": resources} if resources else None


def _volumes(spec: ImageSpec) -> Document:
    made: Document = {}
    for index, volume in enumerate(spec.job.volumes):
        if volume.claim:
            made[f"volume-{index}"] = {"name": volume.claim, "external": True}
        elif volume.nfs_server:
            options = {"type": "nfs", "o": f"addr={volume.nfs_server},rw", "device": f":{volume.nfs_path}"}
            made[f"volume-{index}"] = {"driver": "local", "driver_opts": options}
    return made


def _mount(volume: Volume, index: int) -> str | Document:
    """Makes a mount: of a folder that must exist, of memory, or of a volume that the file defines."""
    if volume.host_path:
        return {"type": "bind", "source": _literal(volume.host_path), "target": volume.mount}
    if volume.memory:
        return {"type": "tmpfs", "target": volume.mount, "tmpfs": {"size": memory(volume.memory)}}
    return f"volume-{index}:{volume.mount}"


def _literal(text: str) -> str:
    """Escapes text, because Compose expands `$NAME`."""
    return text.replace("$", "$$")


def _relative(folder: str) -> str:
    return folder if folder.startswith(("/", "./", "../", "~")) else f"./{folder}"


def _project(spec: ImageSpec, images: Images) -> str:
    """Returns the project's name, with the job's key, so that a job never replaces another job's containers."""
    return spec.job.id or f"{spec.name.replace('.', '-')}-{job_key(images, spec)}"


def judge(document: Any, *, allow_unknown: bool, region: str | None) -> Iterator[Finding]:  # noqa: ARG001  one signature
    """Finds what Compose refuses in a file: violations of the schema, and names that the file does not define."""
    yield from published_findings(document, "compose", _COMPOSE)
    services = document.get("services")
    for name, service in services.items() if isinstance(services, dict) and "include" not in document else ():
        if isinstance(service, dict):
            yield from _service_findings(document, service, ("services", name))
    if isinstance(services, dict):
        yield from _rank_findings({name: item for name, item in services.items() if isinstance(item, dict)})


def _rank_findings(services: Document) -> Iterator[Finding]:
    """Checks ranks and addresses; in a file for one of several machines, only without the others' names and number."""
    read = [_machines(name, service) for name, service in services.items()]
    groups = [each for each in read if each.is_told]
    is_whole = len(groups) > 1 and not any(
        {"profiles", "network_mode", "extra_hosts"} & each.keys() for each in services.values()
    )
    nodes, names = {1, sum(each.count for each in groups)}, [host for each in read for host in each.hosts]
    yield from rank_findings(groups, nodes if is_whole else (), names if is_whole else (), is_closed=is_whole)


def _machines(name: str, service: Document) -> Machines:
    """Reads what the containers of a service start, and by which names others find them."""
    path, told = ("services", name), service.get("environment")
    commands = [(service.get(key) or "", (*path, key)) for key in ("entrypoint", "command")]
    texts = [(" ".join(map(str, words)) if isinstance(words, list) else str(words), where) for words, where in commands]
    pairs: list[tuple[str, str | int]] = [
        (f"{key}={UNKNOWN if value is None else value}", key) for key, value in _mapping(told).items()
    ]
    pairs += [(str(item), index) for index, item in enumerate(told)] if isinstance(told, list) else []
    variables = {
        text.partition("=")[0]: (text.partition("=")[2] or UNKNOWN, (*path, "environment", at)) for text, at in pairs
    }
    aliases = [get(network, "aliases") for network in _mapping(service.get("networks")).values()]
    others = [alias for names in aliases if isinstance(names, list) for alias in names]
    devices = get(service, "deploy", "resources", "reservations", "devices")
    counts = [get(device, "count") for device in devices] if isinstance(devices, list) else []
    count = service.get("scale", _mapping(service.get("deploy")).get("replicas", 1))
    return Machines(
        commands=[(text.replace("$$", "$"), where) for text, where in texts],
        variables=variables,
        count=count if isinstance(count, int) else 0,
        gpus=counts[0] if len(counts) == 1 else None,
        hosts=[str(host) for host in (name, service.get("hostname"), service.get("container_name"), *others) if host],
        is_open="env_file" in service,
    )


def _mapping(value: Any) -> Document:
    return value if isinstance(value, dict) else {}


def _service_findings(document: Document, service: Document, path: Path) -> Iterator[Finding]:
    yield from image_findings(service.get("image"), (*path, "image"))
    if not service.keys() & {"image", "build", "extends", "provider"}:
        yield Finding(path=path, message="has neither image nor build", source=_COMPOSE)
    for key, kind in (("depends_on", "services"), ("networks",) * 2, ("volumes",) * 2, ("secrets",) * 2):
        items = service.get(key)
        for index, item in enumerate(items) if isinstance(items, list) else ((each, each) for each in _mapping(items)):
            source = item.get("source") if isinstance(item, dict) and item.get("type", "volume") == "volume" else item
            name = source.partition(":")[0] if isinstance(source, str) else None
            if key == "volumes" and (name is None or not _VOLUME.match(name) or name == source == item):
                continue  # a path, or a volume without a name
            if name is not None and name not in {"default", *_mapping(document.get(kind))}:
                yield Finding(path=(*path, key, index), message=f"{name!r} is none of `{kind}`", source=_COMPOSE)


def _errors(spec: ImageSpec, project: str) -> Iterator[FieldError]:
    if not _PROJECT.match(project):
        message = f"{project!r} is not a Compose project: expected a-z, 0-9, _ and -"
        yield FieldError(message, field="job.id")
    yield from size_errors(spec, _CPUS, _MEMORY)
    if spec.job.job_dir and is_folder(spec.job.job_dir) and ":" in spec.job.job_dir:
        yield FieldError(f"{spec.job.job_dir!r}: a folder with ':' cannot be mounted", field="job.job_dir")
