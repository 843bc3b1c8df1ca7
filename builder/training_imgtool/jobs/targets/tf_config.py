"""TF_CONFIG and CLUSTER_SPEC for the user's own machines, from a list of hosts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from training_imgtool.base.errors import FieldError, FieldListError, UsageError
from training_imgtool.jobs import launcher
from training_imgtool.jobs.cluster import to_texts, with_port
from training_imgtool.jobs.frameworks import local_flavour, rules_of
from training_imgtool.jobs.model import (
    Document,
    Format,
    Images,
    JobFile,
    JobOptions,
    args_with_job_dir,
    image_of,
    passed_job_dir,
    replicas,
    results_folder,
)
from training_imgtool.jobs.targets.compose import cpus, is_folder, memory, shared_memory
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\])(?::(?P<port>[0-9]{1,5}))?\Z")

_SECRETS_FILE = f"{launcher.SECRETS}/env"
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")


def parse_hosts(text: str) -> dict[Role, tuple[str, ...]]:
    """Parses `master=vm-1,worker=vm-2,worker=vm-3:2223` to each role's hosts; raises UsageError for a wrong part."""
    hosts: dict[Role, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, equals, host = part.partition("=")
        role = {"chief": Role.MASTER, **{role.value: role for role in Role}}.get(word)
        if not equals or role is None:
            raise UsageError(
                f"--hosts: {part!r} is not ROLE=HOST", hint="for example --hosts master=vm-1,worker=vm-2,worker=vm-3"
            )
        match = _HOST.match(host)
        if match is None or (match["port"] and not 1 <= int(match["port"]) <= 65535):
            raise UsageError(f"--hosts: {host!r} is not HOST or HOST:PORT")
        hosts[role] = (*hosts.get(role, ()), host)
    return {role: hosts[role] for role in Role if role in hosts}


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Checks that the hosts match the spec's cluster."""
    return list(_errors(spec, options))


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Writes the variables of every machine in three forms: data, an env file, and a `docker run` command."""
    nodes = {f"{role}-{index}": (role, index) for role, hosts in options.hosts.items() for index in range(len(hosts))}
    variables = {name: _variables(spec, options, node, spec.job.job_dir) for name, node in nodes.items()}
    hosts = {name: options.hosts[role][index] for name, (role, index) in nodes.items()}
    lines = {name: _docker_run(spec, images, options, name, node) for name, node in nodes.items()}
    return JobFile(
        target=Target.TF_CONFIG,
        documents=(variables,),
        notes=("note: job.secrets: --format docker-run reads job.secrets_file; with other formats, set them yourself",)
        if spec.job.secrets
        else (),
        header=("Each machine takes its own entry; --format docker-run prints the command lines.",),
        texts={
            Format.ENV: lambda machine: _by_machine(hosts, machine, lambda name: _env_file(variables[name])),
            Format.DOCKER_RUN: lambda machine: _by_machine(hosts, machine, lambda name: f"{lines[name]}\n"),
        },
    )


def _by_machine(hosts: Mapping[str, str], machine: str | None, text: Callable[[str], str]) -> str:
    if machine is not None and machine not in hosts:
        raise UsageError(f"--machine {machine}: expected {', '.join(hosts)}")
    names = hosts if machine is None else [machine]
    return "\n".join(f"# {name} on {hosts[name]}\n{text(name)}" for name in names)


def _env_file(variables: Document) -> str:
    """Writes the file for `docker run --env-file`, with one variable per line."""
    texts = to_texts(variables)
    if wrong := [key for key, value in texts.items() if "\n" in value]:
        message, hint = "--format env allows no line feeds in a value", "--format docker-run, or yaml"
        raise FieldListError(tuple(FieldError(message, field=f"job.env.{key}", hint=hint) for key in wrong))
    return "".join(f"{key}={value}\n" for key, value in texts.items())


def _variables(spec: ImageSpec, options: JobOptions, node: tuple[Role, int], job_dir: str | None) -> Document:
    rules = rules_of(spec.framework)
    given = job_dir if rules.takes_job_dir(spec) else None
    return {**spec.job.env, **rules.describe(spec, local_flavour(spec), options.hosts, *node, job_dir=given)}


def _docker_run(spec: ImageSpec, images: Images, options: JobOptions, name: str, node: tuple[Role, int]) -> str:
    role, _index = node
    of_role, job_dir = spec.roles[role], spec.job.job_dir
    in_container = "/job" if is_folder(job_dir) else job_dir
    mounted, variables = (
        passed_job_dir(spec, in_container or results_folder(spec)),
        _variables(spec, options, node, in_container),
    )
    argv = ["docker", "run", "--rm", "--name", f"{spec.job.id or spec.name}-{name}", "--network", "host"]
    argv += ["--gpus", str(of_role.gpus.count)] if of_role.gpus else []
    argv += ["--cpus", cpus(of_role.cpus)] if of_role.cpus else []
    argv += ["--memory", memory(of_role.memory)] if of_role.memory else []
    argv += ["--shm-size", shared] if (shared := shared_memory(spec, role)) else []
    argv += ["--stop-timeout", str(spec.job.grace_period)] if spec.job.grace_period else []
    argv += ["--volume", f"{job_dir}:/job"] if is_folder(job_dir) else []
    for mount in _mounts(spec):
        argv += ["--mount", mount]
    for key, value in to_texts(variables).items():
        argv += ["--env", f"{key}={value}"]
    command = launcher.with_secrets(spec, role, _SECRETS_FILE) if spec.job.secrets else launcher.entrypoint(spec, role)
    argv += ["--entrypoint", command[0]] if command else []
    return shlex.join([*argv, image_of(images, role), *command[1:], *args_with_job_dir(spec, role, mounted)])


def _mounts(spec: ImageSpec) -> Iterator[str]:
    """Yields the options that mount the volumes and the file with the secrets."""
    for index, volume in enumerate(spec.job.volumes):
        if volume.memory:
            yield f"type=tmpfs,target={volume.mount},tmpfs-size={memory(volume.memory)}"
        elif volume.host_path:
            yield f"type=bind,source={volume.host_path},target={volume.mount}"
        elif volume.claim:
            yield f"type=volume,source={volume.claim},target={volume.mount}"
        else:
            options = f"type=nfs,volume-opt=o=addr={volume.nfs_server},volume-opt=device=:{volume.nfs_path}"
            named = f"source={spec.job.id or spec.name}-volume-{index},target={volume.mount}"
            yield f"type=volume,{named},volume-opt={options}"
    if spec.job.secrets:
        yield f"type=bind,source={spec.job.secrets_file},target={_SECRETS_FILE},readonly"


def _errors(spec: ImageSpec, options: JobOptions) -> Iterator[FieldError]:
    wanted, given = replicas(spec), options.hosts
    if spec.job.id is not None and not _CONTAINER.match(spec.job.id):
        yield FieldError(f"{spec.job.id!r} is not a container's name: expected letters, digits, _ . -", field="job.id")
    if not given:
        example = ",".join(f"{role}=HOST" for role, count in wanted.items() for _ in range(min(count, 3)))
        yield FieldError("tf-config needs the names of the machines", field="roles", hint=f"--hosts {example}")
        return
    for role in Role:
        have, want = len(given.get(role, ())), wanted.get(role, 0)
        if have != want:
            yield FieldError(f"expected {want}, but --hosts names {have}", field=f"roles.{role}.count")
    yield from _find_repeated(given)
    job_dir = spec.job.job_dir
    if job_dir and is_folder(job_dir) and not job_dir.startswith("/"):
        yield FieldError(f"{job_dir!r}: expected an absolute folder or a URL such as gs://…", field="job.job_dir")


def _find_repeated(hosts: Mapping[Role, tuple[str, ...]]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for role, of_role in hosts.items():
        for host in map(with_port, of_role):
            if host in seen:
                yield FieldError(
                    f"{host} appears twice: two replicas cannot share a port",
                    field=f"roles.{role}",
                    hint="give one replica another port, such as HOST:2223",
                )
            seen.add(host)
