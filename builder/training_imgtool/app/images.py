"""Makes, checks and runs the images of one spec, for the command line and for the Python API (`api`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from training_imgtool.base.errors import PackageGoneError
from training_imgtool.base.progress import Note, Planned, Progress
from training_imgtool.base.settings import Settings
from training_imgtool.jobs import check_job
from training_imgtool.make.platforms import build_platforms
from training_imgtool.make.request import BuildOptions, BuildResult, BuildRun
from training_imgtool.model.spec import Role
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import Inputs, prepare
from training_imgtool.plan.project_files import SpecChoice

if TYPE_CHECKING:
    from training_imgtool.local.ready import Ready, Request
    from training_imgtool.local.summary import Summary
    from training_imgtool.local.watch import Sign
    from training_imgtool.model.load import SpecFile
    from training_imgtool.oci.attest.cosign import Signatory
    from training_imgtool.resolve.lock.carry_over import Renewal
    from training_imgtool.verify.findings import Accepted, ImageReport


def plan_images(choice: SpecChoice, machine: Machine, *, check: bool) -> Inputs:
    """Plans a build without writing anything; raises the errors of reading the spec and of the checks."""
    spec_file = choice.open()
    if check:
        check_job(spec_file)
    inputs = prepare(spec_file, machine, choice, write=False)
    if check:
        from training_imgtool.make.trainer_check import check_trainer

        check_trainer(inputs, machine)
    return inputs


def prepare_build(
    choice: SpecChoice,
    options: BuildOptions,
    machine: Machine,
    *,
    renewal: Renewal | None = None,
    write: bool = True,
) -> Inputs:
    """Reads a spec, shows the spec's roles in the progress view, and prepares the build."""
    spec_file = choice.open()
    if options.check and not renewal:
        check_job(spec_file)
    for role in (role for role in Role if role in (options.roles or spec_file.spec.roles)):
        machine.progress(Planned(role))
    return prepare(spec_file, machine, choice, renewal=renewal, write=write, roles=options.roles, push=options.push)


def build_images(choice: SpecChoice, options: BuildOptions, machine: Machine) -> tuple[Inputs, tuple[BuildResult, ...]]:
    """Builds the images of one spec; if an archive has dropped a locked package, renews the lock and builds again.

    The archives of Debian and Ubuntu keep only the newest version of a package. If the registry has the layer of the
    packages, the build needs no archive. Otherwise no machine can build the locked versions any more.
    Raises PackageGoneError if `choice.locked` forbids a new lock, or if a package of the new lock is missing, too.
    """
    inputs = prepare_build(choice, options, machine)
    try:
        return inputs, build_platforms(BuildRun(inputs=inputs, options=options, machine=machine))
    except PackageGoneError as error:
        if choice.locked:
            raise
        machine.progress(Note(f"{error}, and no registry has the layer; imgtool renews the lock"))
    from training_imgtool.resolve.lock.carry_over import Renewal

    inputs = prepare_build(choice, options, machine, renewal=Renewal(debian=True))
    return inputs, build_platforms(BuildRun(inputs=inputs, options=options, machine=machine))


def verify_images(
    choice: SpecChoice,
    machine: Machine,
    *,
    roles: tuple[Role, ...],
    signed_by: Signatory | None,
    accept: frozenset[Accepted],
    smoke: bool,
) -> tuple[ImageReport, ...]:
    """Compares the pushed images of one spec with what this machine makes; raises as `verify.session.verify`."""
    from training_imgtool.verify.session import VerifyRun, verify

    inputs = prepare(choice.open(), machine, choice, write=False, roles=roles)
    return verify(
        VerifyRun(inputs=inputs, roles=roles, signed_by=signed_by, accept=accept, smoke=smoke, machine=machine)
    )


def run_images(
    choice: SpecChoice,
    request: Request,
    settings: Settings,
    open_progress: Callable[[], AbstractContextManager[Progress]],
    open_output: Callable[[Ready], AbstractContextManager[Progress]],
) -> Summary:
    """Runs the images of one spec as a cluster on this machine, until the chief ends.

    Args:
        choice: the spec.
        request: the options.
        settings: the machine's settings.
        open_progress: opens the display of events until the cluster starts.
        open_output: opens the display of later events.
    """
    from training_imgtool.local import run as cluster
    from training_imgtool.make.engines.docker.connect import connect as connect_engine

    spec_file = _open_for_engine(choice, request)
    with closing(connect_engine(settings)) as engine:
        with open_progress() as progress, Machine.open(settings, progress) as machine:
            ready = cluster.prepare(prepare(spec_file, machine, choice), request, machine, engine)
        with open_output(ready) as progress:
            return cluster.run(ready, engine, progress)


def watch_images(
    choice: SpecChoice,
    request: Request,
    settings: Settings,
    open_progress: Callable[[], AbstractContextManager[Progress]],
    open_output: Callable[[Ready], AbstractContextManager[Progress]],
    *,
    show: Callable[[Sign], None],
) -> None:
    """Runs the images of one spec as `run_images` does, and runs them again whenever one of their files has changed.

    Args:
        choice: the spec.
        request: the options.
        settings: the machine's settings.
        open_progress: opens the display of events while imgtool makes images.
        open_output: opens the display of the cluster's events.
        show: receives the changes of the watch.
    """
    from training_imgtool.local import run as cluster
    from training_imgtool.local.watch import Watch
    from training_imgtool.make.engines.docker.connect import connect as connect_engine

    def read() -> Inputs:
        spec_file = _open_for_engine(choice, request)
        with open_progress() as progress, Machine.open(settings, progress) as machine:
            return prepare(spec_file, machine, choice)

    def make_ready(inputs: Inputs) -> Ready:
        with open_progress() as progress, Machine.open(settings, progress) as machine:
            return cluster.prepare(inputs, request, machine, engine)

    _open_for_engine(choice, request)  # report a fault of the spec before one of the engine
    with closing(connect_engine(settings)) as engine:
        inputs = read()
        Watch(
            inputs,
            make_ready(inputs),
            engine,
            read=read,
            prepare=make_ready,
            open_output=open_output,
            show=show,
            mtime=settings.source_date_epoch,
        ).run()


def _open_for_engine(choice: SpecChoice, request: Request) -> SpecFile:
    """Opens a spec, for this machine's platform if the spec lists it, and checks that imgtool can run the cluster."""
    from training_imgtool.base.interpreters import this_platform
    from training_imgtool.local import run as cluster

    spec_file = choice.open()
    if (own := this_platform()) in spec_file.platforms:
        spec_file = replace(choice, values={**choice.values, "platform": own}).open()
    cluster.check(spec_file.spec, request)
    return spec_file
