"""The Python interface: five functions. `training_imgtool` exports the functions, their result types and errors.

Each function reads the machine's settings from the environment, as the corresponding command does, and prints nothing:
`progress` receives the events that the command would show. `import training_imgtool` changes neither logging nor
signal handlers, and loads no third-party package.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.base.errors import UsageError, VerificationError
from training_imgtool.base.results import ByRole, Image, Plan, PlannedImage, Replica, Run, VerifiedImage

if TYPE_CHECKING:
    from training_imgtool.base.progress import Progress
    from training_imgtool.model.spec import Role
    from training_imgtool.oci.machine import Machine
    from training_imgtool.plan.project_files import SpecChoice

Spec = str | os.PathLike[str]
Listener = Callable[[dict[str, Any]], None]


def _are_texts(values: object) -> bool:
    """Tells whether `values` is a list of texts; rejects a single text, which Python treats as a list of letters."""
    return isinstance(values, Iterable) and not isinstance(values, str) and all(isinstance(one, str) for one in values)


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike) and "\0" not in str(value)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_changes(value: object) -> bool:
    return isinstance(value, Mapping) and _are_texts([*value, *value.values()])


_TEXT = ("a text", lambda value: isinstance(value, str))
_PATH, _LIST, _COUNT = ("a path", _is_path), ("a list of texts", _are_texts), ("a whole number, 0 or more", _is_count)
_KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("spec", "job_dir"), _PATH),
    **dict.fromkeys(("roles", "tags", "secrets", "accept", "kill", "preempt", "args"), _LIST),
    **dict.fromkeys(("workers", "ps"), _COUNT),
    "changes": ("a mapping of spec keys to texts", _are_changes),
}


def plan(
    spec: Spec = ".",
    *,
    changes: Mapping[str, str] | None = None,
    registry: str | None = None,
    locked: bool = False,
    check: bool = True,
    progress: Listener | None = None,
) -> Plan:
    """Decides versions, bases, wheels and keys, as `imgtool show` does; writes nothing.

    Args:
        spec: the image.yaml, or the folder that contains it.
        changes: values of keys of the spec, in place of the file's, such as `{"tensorflow": "2.16.2"}`.
        registry: where the images go, if the spec does not name it.
        locked: require a lock that exists and is current.
        check: check the job, and the trainer's syntax and imports.
        progress: receives records, from any thread; their fields are those of `--progress json`.

    Raises:
        ImgtoolError: the command would fail with this `exit_code` and message. A FieldListError has
            every violation in `errors`, each with its `field` and `location`.
    """
    from training_imgtool.app.images import plan_images
    from training_imgtool.app.show import list_warnings

    with _call(progress, {"spec": spec, "changes": changes, "registry": registry}) as machine:
        inputs = plan_images(_choose(spec, changes, registry, locked=locked), machine, check=check)
        warnings = list_warnings(inputs)
    images = tuple(
        PlannedImage(
            role=str(image.role),
            tag=str(image.tag) if image.tag else None,
            key=image.key,
            **image.locked.variant.installed,
            python=image.locked.variant.python,
            cuda=image.locked.variant.cuda,
            base=f"{image.recipe.base_name}@{image.recipe.base.digest}",
            wheel_bytes=sum(wheel.size for wheel in image.locked.wheels),
            needs_engine=next((stage.engine for stage in image.stages if stage.engine), None),
        )
        for image in inputs.images
    )
    return Plan(name=inputs.spec.name, platform=inputs.spec.platform, warnings=warnings, images=ByRole(images))


def push(
    spec: Spec = ".",
    *,
    changes: Mapping[str, str] | None = None,
    roles: Sequence[str] = (),
    registry: str | None = None,
    tags: Sequence[str] = (),
    engine: str = "auto",
    builder: str | None = None,
    secrets: Sequence[str] = (),
    create_repository: bool = False,
    locked: bool = False,
    check: bool = True,
    progress: Listener | None = None,
) -> ByRole[Image]:
    """Pushes the images that the registry lacks, as `imgtool push` does; returns all images by role.

    Args:
        spec: the image.yaml, or the folder that contains it.
        changes: values of keys of the spec, in place of the file's.
        roles: only these; empty for all.
        registry: where the images go, if the spec does not name it.
        tags: further tags; with several roles, ROLE-TAG.
        engine: the builder of the images: `auto`, `buildx` or `direct`.
        builder: a builder of buildx, for images that need an engine.
        secrets: for `RUN --mount=type=secret`, such as `id=ID,src=FILE`.
        create_repository: create a missing Artifact Registry repository first.
        locked: fail if the lock is missing or out of date; never write the lock.
        check: check the job, and the trainer's syntax and imports.
        progress: receives records, as in `plan`.

    Raises:
        ImgtoolError: as in `plan`. In this case no tag of `tags` has moved.
    """
    from training_imgtool.app.images import build_images
    from training_imgtool.make.request import BuildOptions

    given: dict[str, object] = {"spec": spec, "changes": changes, "registry": registry, "roles": roles, "tags": tags}
    given |= {"engine": engine, "builder": builder, "secrets": secrets}
    with _call(progress, given) as machine:
        options = BuildOptions(
            roles=_roles(roles),
            push=True,
            engine=engine,
            builder=builder,
            tags=tuple(tags),
            create_repository=create_repository,
            check=check,
        )
        _, results = build_images(_choose(spec, changes, registry, locked=locked), options, machine)
    return ByRole(
        tuple(
            Image(
                role=str(result.role),
                reference=result.reference,
                digest=result.reference.partition("@")[2],
                outcome=str(result.outcome),
                seconds=result.seconds,
            )
            for result in results
        )
    )


def job(
    spec: Spec = ".",
    *,
    changes: Mapping[str, str] | None = None,
    target: str | None = None,
    registry: str | None = None,
    images: Mapping[str, Image] | Mapping[str, str] | None = None,
    job_id: str | None = None,
    hosts: str | None = None,
    allow_unknown: bool = False,
    locked: bool = False,
    progress: Listener | None = None,
) -> dict[str, Any]:
    """Returns the data of `imgtool config --format json`, which a program can send to the service's API.

    For vertex the data is a CustomJob or a HyperparameterTuningJob, for ai-platform a Job, for the Kubernetes targets
    an object or a List, for compose the file, for tf-config the variables of each node, for skypilot the task, for
    slurm the options, environment and steps.

    Args:
        spec: the image.yaml, or the folder that contains it.
        changes: values of keys of the spec, in place of the file's.
        target: the job file's format; by default the spec's `job.target`.
        registry: where the images are, if the spec does not name it.
        images: the result of `push`, or REPOSITORY@sha256:DIGEST by role; by default imgtool finds the images of the
            current inputs.
        job_id: the job's name, instead of the spec's.
        hosts: for tf-config, as `--hosts`: `master=vm-1,worker=vm-2`.
        allow_unknown: accept machines, accelerators and regions that imgtool's tables lack.
        locked: require a lock that exists and is current.
        progress: receives records, as in `plan`.

    Raises:
        ImgtoolError: as in `plan`.
    """
    from training_imgtool.app.config import JobRequest, job_document, parse_target

    given: dict[str, object] = {"spec": spec, "changes": changes, "target": target, "registry": registry}
    given |= {"job_id": job_id, "hosts": hosts}
    with _call(progress, given) as machine:
        request = JobRequest(
            target=parse_target(target) if target is not None else None,
            job_id=job_id,
            hosts=hosts,
            allow_unknown=allow_unknown,
        )
        named = None if images is None else {role: str(image) for role, image in images.items()}
        return job_document(_choose(spec, changes, registry, locked=locked), request, named, machine)


def verify(
    spec: Spec = ".",
    *,
    changes: Mapping[str, str] | None = None,
    roles: Sequence[str] = (),
    registry: str | None = None,
    accept: Sequence[str] = (),
    smoke: bool = False,
    signature: str | None = None,
    issuer: str | None = None,
    locked: bool = False,
    progress: Listener | None = None,
) -> ByRole[VerifiedImage]:
    """Makes the images again and compares them with those in the registry, as `imgtool verify` does.

    Args:
        spec: the image.yaml, or the folder that contains it.
        changes: values of keys of the spec, in place of the file's.
        roles: only these; empty for all.
        registry: where the images are, if the spec does not name it.
        accept: unproven parts to accept: `bytecode`, `engine`, `gone`, `attached`.
        smoke: also start a container that imports the framework and the trainer.
        signature: the key or identity that must have signed.
        issuer: the OIDC provider that vouches for the identity.
        locked: require a lock that exists and is current.
        progress: receives records, as in `plan`.

    Raises:
        VerificationError: an image differs, or is not proven; `details` has a line per image.
        ImgtoolError: as in `plan`.
    """
    from training_imgtool.app.images import verify_images
    from training_imgtool.oci.attest.cosign import Signatory
    from training_imgtool.verify.findings import read_accepted
    from training_imgtool.verify.report import list_failures

    given: dict[str, object] = {"spec": spec, "changes": changes, "registry": registry, "roles": roles}
    given |= {"accept": accept, "signature": signature, "issuer": issuer}
    with _call(progress, given) as machine:
        reports = verify_images(
            _choose(spec, changes, registry, locked=locked),
            machine,
            roles=_roles(roles),
            signed_by=Signatory.read(signature, issuer),
            accept=read_accepted(accept),
            smoke=smoke,
        )
    if failures := list_failures(reports):
        raise VerificationError("imgtool could not prove that the images match the lock", details=failures)
    return ByRole(
        tuple(
            VerifiedImage(
                role=str(report.role),
                reference=str(report.image),
                checks={finding.check: finding.found for finding in report.findings},
            )
            for report in reports
        )
    )


def run(
    spec: Spec = ".",
    *,
    changes: Mapping[str, str] | None = None,
    registry: str | None = None,
    service: str | None = None,
    workers: int | None = None,
    ps: int | None = None,
    processes: int | None = None,
    args: Sequence[str] | None = None,
    job_dir: Spec | None = None,
    kill: Sequence[str] = (),
    preempt: Sequence[str] = (),
    restart: bool = False,
    locked: bool = False,
    progress: Listener | None = None,
) -> Run:
    """Runs the images as a cluster of containers on this machine, as `imgtool run` does; needs a Docker Engine.

    Args:
        spec: the image.yaml, or the folder that contains it.
        changes: values of keys of the spec, in place of the file's.
        registry: where the images are, if the spec does not name it.
        service: the service to imitate, `ai-platform`, `vertex`, `tfjob` or `local`; by default that of job.target.
        workers: the number of workers, in place of the spec's.
        ps: the number of parameter servers, in place of the spec's.
        processes: the number of processes of each replica, for PyTorch; by default 1.
        args: the program's arguments, in place of the spec's.
        job_dir: the folder for checkpoints and models; by default ./job beside the spec.
        kill: replicas to kill, such as `worker:1@30s`.
        preempt: replicas to preempt, such as `worker:1@30s/grace=15s`.
        restart: restart programs that fail before their first checkpoint, as the service does.
        locked: require a lock that exists and is current.
        progress: receives records, as in `plan`; records with `event` `log` are the replicas' output.

    Raises:
        VerificationError: the run failed; `details` has the last lines of the replica that failed.
        ImgtoolError: as in `plan`.
    """
    from training_imgtool.app.images import run_images
    from training_imgtool.local.ready import Request
    from training_imgtool.local.rehearsal import parse_kill
    from training_imgtool.local.replicas import parse_service
    from training_imgtool.local.summary import error_of, kept_of

    given: dict[str, object] = {"spec": spec, "changes": changes, "registry": registry, "service": service}
    given |= {
        "kill": kill,
        "preempt": preempt,
        "args": args,
        "workers": workers,
        "ps": ps,
        "processes": processes,
        "job_dir": job_dir,
    }
    with _call(progress, given) as machine:
        request = Request(
            service=parse_service(service) if service else None,
            workers=workers,
            ps=ps,
            processes=processes,
            args=None if args is None else tuple(args),
            job_dir=Path(job_dir) if job_dir else None,
            kills=(*map(parse_kill, kill), *(parse_kill(text, preempted=True) for text in preempt)),
            restart=restart,
        )
        summary = run_images(
            _choose(spec, changes, registry, locked=locked),
            request,
            machine.settings,
            lambda: nullcontext(machine.progress),
            lambda _ready: nullcontext(machine.progress),
        )
    if error := error_of(summary):
        raise error
    return Run(
        job_dir=summary.job_dir,
        checkpoint=summary.checkpoint.path if summary.checkpoint else None,
        kept=str(kept_of(summary)),
        lost=summary.lost,
        seconds=summary.seconds,
        replicas=tuple(
            Replica(
                name=row.replica.name,
                role=str(row.replica.role),
                exit_code=row.exit_code,
                seconds=row.seconds,
                peak_bytes=row.peak_memory,
                restarts=row.restarts,
            )
            for row in summary.replicas
        ),
    )


@contextmanager
def _call(progress: Listener | None, arguments: Mapping[str, object]) -> Iterator[Machine]:
    """Yields the settings and clients for one function call; raises ImgtoolError in place of OSError and MemoryError.

    Raises UsageError if an argument has the wrong type or is empty.
    """
    from training_imgtool.app.machine import read_settings
    from training_imgtool.base.errors import of_exception
    from training_imgtool.base.gates import check_given
    from training_imgtool.base.progress import Note, silent
    from training_imgtool.base.progress_records import Records
    from training_imgtool.oci.machine import Machine

    for name, value in arguments.items():
        expected, is_right = _KINDS.get(name, _TEXT)
        if (value is not None or name == "spec") and not is_right(value):
            raise UsageError(f"{name}: expected {expected}, found {value!r:.60}")
        if name != "args":
            check_given(name, value)
    secrets: Any = arguments.get("secrets", ())
    view: Progress = Records(progress, time.monotonic) if progress else silent
    try:
        with Machine.open(read_settings(os.environ, lambda text: view(Note(text)), tuple(secrets)), view) as machine:
            yield machine
    except (OSError, MemoryError) as error:
        raise of_exception(error) from error


def _choose(spec: Spec, changes: Mapping[str, str] | None, registry: str | None, *, locked: bool) -> SpecChoice:
    from training_imgtool.plan.project_files import SpecChoice

    return SpecChoice(path=Path(spec), values=dict(changes or {}), registry=registry, locked=locked)


def _roles(names: Sequence[str]) -> tuple[Role, ...]:
    from training_imgtool.model.spec import Role

    if unknown := [name for name in names if name not in list(Role)]:
        raise UsageError(f"roles: {unknown[0]!r}: expected {', '.join(Role)}")
    return tuple(map(Role, names))
