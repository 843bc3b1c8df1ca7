"""`imgtool run`: makes a cluster from inputs, runs the cluster, and returns a summary."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.context.own_files import JOB_MARK
from training_imgtool.base.errors import (
    CredentialsError,
    LocalFileError,
    RegistryRefusedError,
    TemporaryError,
    UsageError,
)
from training_imgtool.base.progress import Done, Note, Outcome, Progress
from training_imgtool.base.reference import Digest, Repository
from training_imgtool.base.system import list_nvidia_gpus
from training_imgtool.base.threads import run_all
from training_imgtool.jobs import view_of
from training_imgtool.jobs.model import replicas
from training_imgtool.local.checkpoints import Checkpoint, latest
from training_imgtool.local.limits import Share, divide_resources, request_of
from training_imgtool.local.owner import sweep, this_process
from training_imgtool.local.ready import Ready, Request
from training_imgtool.local.replicas import Cluster, adapt, make_cluster, service_of, target_of
from training_imgtool.local.summary import RunImage, Summary
from training_imgtool.local.supervisor import Supervisor
from training_imgtool.make.build import build
from training_imgtool.make.engines.docker.containers import Containers, EngineHost
from training_imgtool.make.engines.pull import pull_image
from training_imgtool.make.find import find_images
from training_imgtool.make.request import BuildOptions, BuildRun
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.plan.inputs import RoleImage

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.engine import DockerEngine
    from training_imgtool.oci.machine import Machine
    from training_imgtool.plan.inputs import Inputs

_ID_BYTES = 4
_OWN = Repository("localhost", "imgtool/stage")  # in the job file's name of an image that no registry has


def check(spec: ImageSpec, request: Request) -> ImageSpec:
    """Applies the options to the spec; raises UsageError if an option kills a replica that does not exist."""
    spec = adapt(spec, workers=request.workers, ps=request.ps, processes=request.processes, args=request.args)
    counts = replicas(view_of(spec, {}, target_of(request.service or service_of(spec.job.target))).spec)
    for kill in request.kills:
        if kill.index >= counts.get(kill.role, 0):
            having = ", ".join(f"{count} {role}" for role, count in counts.items())
            raise UsageError(
                f"{kill.option} {kill.role}:{kill.index}: there is no such replica; the cluster has {having}"
            )
    return spec


def prepare(inputs: Inputs, request: Request, machine: Machine, engine: DockerEngine) -> Ready:
    """Prepares the images and the job directory, and removes the containers and networks of runs that were killed.

    Raises UsageError, InputError, LocalFileError, and the errors of pulling and building images.
    """
    spec = check(inputs.spec_file.spec, request)
    service, values = request.service or service_of(spec.job.target), read_secrets(spec, machine.settings.environ)
    containers, owner = Containers(engine.api), this_process()
    job_dir = _make_job_dir(request.job_dir or inputs.spec_file.folder / "job", spec)
    for run in sweep(containers, owner):
        machine.progress(Note(f"removed the containers and networks that a killed imgtool left of run {run}"))
    roles = tuple(replicas(spec))
    work = BuildRun(inputs=inputs, options=BuildOptions(roles=roles), machine=machine)
    images = obtain(work, engine)
    view = view_of(spec, {role: image.digest for role, image in images.items()}, target_of(service))
    spec = view.spec
    images = {role: images.get(role) or images[Role.WORKER] for role in view.images}
    references = {role: image.reference for role, image in images.items()}
    cluster = make_cluster(spec, view.images, service, run_images=references)
    host = containers.machine()
    granted, notes = _shares(spec, cluster, host, local=_is_local(engine))
    checkpoint = latest(job_dir)
    notes = (
        *(note.removeprefix("note: ") for note in view.notes),
        *cluster.notes,
        *notes,
        *_folder_notes(job_dir, checkpoint, engine),
    )
    for note in notes:
        machine.progress(Note(note))
    return Ready(
        run=secrets.token_hex(_ID_BYTES),
        spec=spec,
        cluster=cluster,
        images=images,
        shares=granted,
        job_dir=job_dir,
        user="" if host.rootless or not _is_local(engine) else choose_user(spec, job_dir, os.geteuid()),
        kills=request.kills,
        restart=request.restart or bool(request.kills),
        checkpoint=checkpoint,
        owner=owner,
        notes=notes,
        secrets=values,
    )


def read_secrets(spec: ImageSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Reads the values of `job.secrets` from the environment; raises UsageError if a variable is not set."""
    missing = [name for name in spec.job.secrets if name not in environ]
    if missing:
        raise UsageError(
            f"job.secrets.{missing[0]}: imgtool run reads the value from the variable {missing[0]}, which is not set",
            hint=f"export {missing[0]}=…",
        )
    return {name: environ[name] for name in spec.job.secrets}


def run(ready: Ready, engine: DockerEngine, progress: Progress) -> Summary:
    """Runs the cluster until the chief has ended for good; always removes all containers and the network."""
    return Supervisor(ready, Containers(engine.api), progress).run()


def _shares(
    spec: ImageSpec, cluster: Cluster, machine: EngineHost, *, local: bool
) -> tuple[dict[str, Share], tuple[str, ...]]:
    requests = {replica.name: request_of(spec.roles[replica.role]) for replica in cluster.replicas}
    cards: Sequence[str] | None = () if not machine.nvidia else None
    if machine.nvidia and local:
        cards = list_nvidia_gpus()
    granted, notes = divide_resources(
        requests, cpus=machine.cpus, memory=machine.memory if machine.limits_memory else 0, gpus=cards
    )
    if not machine.limits_cpu:
        granted = {name: replace(share, cpus=None) for name, share in granted.items()}
    if not (machine.limits_cpu and machine.limits_memory):
        notes = (*notes, "this kernel does not let the engine limit CPUs or memory: replicas run without limits")
    return granted, notes


def _is_local(engine: DockerEngine) -> bool:
    return engine.api.endpoint.url.startswith(("unix://", "http+unix://"))


def _make_job_dir(folder: Path, spec: ImageSpec) -> Path:
    """Creates the job directory if it is missing, with a mark that keeps the directory out of images."""
    try:
        if not folder.is_dir():
            if folder.is_symlink():
                target = folder.readlink()
                raise LocalFileError(f"the job directory {folder} is a link to {target}, which is not a folder")
            folder.mkdir(parents=True)
            (folder / JOB_MARK).touch()
            if spec.user:
                folder.chmod(0o777)  # only the image knows the number of a named user
        resolved = folder.resolve()
    except OSError as error:
        raise LocalFileError(
            f"cannot make the job directory {folder}: {error.strerror}", hint="--job-dir DIR chooses another folder"
        ) from error
    if resolved == Path(resolved.anchor):
        raise UsageError(f"--job-dir {folder} is the root folder, whose files replicas could change: name another")
    return resolved


def choose_user(spec: ImageSpec, job_dir: Path, caller: int) -> str:
    """Returns the programs' user as `UID:GID`: the caller, or the job directory's owner if the caller is root.

    An empty text means the user that the image sets, which is the spec's `user` or root.
    """
    owner = job_dir.stat()
    user, group = (caller, os.getegid()) if caller else (owner.st_uid, owner.st_gid)
    return f"{user}:{group}" if user and not spec.user else ""


def _folder_notes(job_dir: Path, checkpoint: Checkpoint | None, engine: DockerEngine) -> tuple[str, ...]:
    notes = []
    if not _is_local(engine):
        notes.append(f"the engine is on another machine, and {job_dir} is a folder on that machine")
    if checkpoint is not None:
        notes.append(f"{job_dir} already contains {checkpoint.path}: a trainer that resumes starts from it")
    return tuple(notes)


def obtain(work: BuildRun, engine: DockerEngine) -> Mapping[Role, RunImage]:
    """Makes sure that the engine has the images of the roles in `work`.

    imgtool prefers the images in the registry, because a job would use these, and pulls images that the engine lacks.
    If the registry does not answer, imgtool prints a note, and uses the engine's images or builds the images.
    """
    repository = work.inputs.target
    images = _from_registry(work, engine) if repository is not None else {}
    rest = tuple(image.role for image in work.wanted if image.role not in images)
    if rest:
        local = replace(work, options=replace(work.options, roles=rest, push=False, tags=(), check=False))
        for built in build(local, engine):
            source = "engine" if built.outcome is Outcome.FOUND else "built"
            image_id = built.image_id or ""
            images[built.role] = RunImage(reference=image_id, digest=_OWN.digest(image_id), source=source)
    return {image.role: images[image.role] for image in work.wanted}


def _from_registry(work: BuildRun, engine: DockerEngine) -> dict[Role, RunImage]:
    """Pulls the images that the registry has."""
    try:
        digests = find_images(work.wanted, work.machine)
        names = run_all(
            {
                image.role: partial(_pull, work, engine, image, digest)
                for image in work.wanted
                if (digest := digests[image.role]) is not None
            }
        )
    except (RegistryRefusedError, CredentialsError, TemporaryError) as error:
        work.machine.progress(Note(f"imgtool uses no image from the registry: {error}"))
        return {}
    return {
        role: RunImage(reference=names[role], digest=digest, source="registry")
        for role, digest in digests.items()
        if digest is not None
    }


def _pull(work: BuildRun, engine: DockerEngine, image: RoleImage, digest: Digest) -> str:
    platform = image.recipe.platform
    name = pull_image(digest, image.key, platform=platform, engine=engine, machine=work.machine)
    work.machine.progress(Done(f"base {digest.repository.path}", Outcome.FOUND, "in the engine"))
    return name
