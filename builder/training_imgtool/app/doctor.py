"""`imgtool doctor`: checks everything that a build needs on this machine, and says how to get what is missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_imgtool.base.errors import (
    EngineUnavailableError,
    FieldError,
    ImgtoolError,
    InputError,
    LocalFileError,
    UsageError,
)
from training_imgtool.base.settings import OTHER_CACHE, Settings
from training_imgtool.base.threads import SEVERITY_ORDER
from training_imgtool.base.user_config import KEYS, Given
from training_imgtool.base.version import __version__

if TYPE_CHECKING:
    from training_imgtool.model.load import SpecFile
    from training_imgtool.plan.project_files import SpecChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check.

    Attributes:
        name: what imgtool checked.
        ok: whether the check passed.
        text: what imgtool found.
        hint: what to do, or None.
        needed: whether a build needs it.
        code: the exit code of a build without it.
    """

    name: str
    ok: bool
    text: str
    hint: str | None = None
    needed: bool = True
    code: int = 0

    def as_data(self) -> dict[str, Any]:
        """Returns the check as data for --json."""
        return {"name": self.name, "ok": self.ok, "needed": self.needed, "text": self.text, "hint": self.hint}

    def as_line(self) -> str:
        """Returns the check as a line of text."""
        mark = "ok     " if self.ok else "missing" if self.needed else "absent "
        return f"{mark} {self.name}: {self.text}" + (f"\n        {self.hint}" if self.hint and not self.ok else "")


def examine(choice: SpecChoice, settings: Settings) -> tuple[Check, ...]:
    """Checks the resolver, the cache and the engine. If there is a spec, also checks the spec's lock and registry."""
    checks = [
        _run_check("imgtool", lambda: _command(settings), needed=False),
        _run_check("uv", _uv),
        _run_check("cache", lambda: _cache(settings)),
        _run_check("engine", lambda: _engine(settings), needed=False),
        _run_check("builder", lambda: _builder(settings), needed=settings.builder is not None),
    ]
    return (*checks, *_settings(settings), *_of_spec(choice, settings))


def _settings(settings: Settings) -> Iterator[Check]:
    """Yields each setting that the user has made, with the variable or configuration file that contains the setting."""
    for key in KEYS:
        name = f"IMGTOOL_{key.upper()}"
        given = Given(settings.environ[name], name) if settings.environ.get(name) else settings.config.get(name)
        if given or key == "cache":
            shown = f"{given.text} ({given.place})" if given else f"{settings.cache} (default)"
            yield Check(name=f"setting {key}", ok=True, text=shown)


def _run_check(name: str, look: Callable[[], str], *, needed: bool = True) -> Check:
    try:
        return Check(name=name, ok=True, text=look(), needed=needed)
    except ImgtoolError as error:
        return Check(name=name, ok=False, text=str(error), hint=error.hint, needed=needed, code=error.exit_code)


def exit_code(checks: tuple[Check, ...]) -> int:
    """Returns the exit code with which a build would end; 0 if nothing is missing that a build needs."""
    missing = {check.code for check in checks if check.needed and not check.ok}
    if InputError.exit_code in missing:
        return InputError.exit_code
    return next((code for code in SEVERITY_ORDER if code in missing), 0)


def _command(settings: Settings) -> str:
    """Describes the program that the command `imgtool` starts; raises UsageError if it starts another program."""
    if (path := shutil.which("imgtool", path=settings.environ.get("PATH"))) is None:
        return f"{__version__}; PATH has no imgtool"
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.check_output([path, "-V"], env=settings.environ, stderr=subprocess.DEVNULL, timeout=20)
        if said.split() == [b"imgtool", __version__.encode()]:
            return f"{__version__} at {path}"
    raise UsageError(f"{path} is another program", hint=f"the command training-imgtool starts imgtool {__version__}")


def _uv() -> str:
    from training_imgtool.resolve.wheels.uv import read_version

    return read_version()


def _cache(settings: Settings) -> str:
    from training_imgtool.app.prune import prune_cache
    from training_imgtool.base.atomic_files import check_writable

    there = next(folder for folder in (settings.cache, *settings.cache.absolute().parents) if folder.exists())
    try:
        check_writable(there / "probe")
    except LocalFileError as error:
        why = getattr(error.__cause__, "strerror", error.message)
        raise LocalFileError(f"cannot write to {settings.cache}: {why}", hint=OTHER_CACHE) from error
    size = sum(part.size for part in prune_cache(settings.cache, 0, dry_run=True))
    most = f"{settings.cache_size / 1e9:g} GB (IMGTOOL_CACHE_SIZE)"
    return f"{settings.cache} can be written, holds {size / 1e6:.0f} MB of at most {most}; imgtool prune"


def _engine(settings: Settings) -> str:
    from training_imgtool.make.engines.docker.connect import connect

    connect(settings).close()
    return "docker"


def _builder(settings: Settings) -> str:
    """Describes the builder that buildx would use; raises EngineUnavailableError if that builder does not run."""
    from training_imgtool.make.engines.buildx.program import list_builders

    wanted = settings.builder or settings.environ.get("BUILDX_BUILDER")
    builders = list_builders(settings)
    chosen = [builder for builder in builders if (builder.name == wanted if wanted else builder.current)]
    running = next((builder for builder in chosen if builder.running), None)
    if running is None:
        others = ", ".join(builder.name for builder in builders if builder.running) or "none"
        name = wanted or "the current builder"
        hint = f"start it, or name another one in IMGTOOL_BUILDER (running: {others}); `docker buildx create` makes one"
        raise EngineUnavailableError(f"{name} does not run", hint=hint)
    return f"{running.name} ({', '.join((running.driver or 'driver unknown', *running.endpoints))}) runs"


def _of_spec(choice: SpecChoice, settings: Settings) -> Iterator[Check]:
    try:
        spec_file = choice.open()
    except ImgtoolError as error:
        # without a spec in this folder, there is nothing to check
        needed = choice.path is not None or bool(choice.values) or not isinstance(error, UsageError)
        yield Check(name="spec", ok=False, text=str(error), hint=error.hint, needed=needed, code=error.exit_code)
        return
    yield Check(name="spec", ok=True, text=str(spec_file.path))
    yield _run_check("lock", lambda: _lock(spec_file))
    yield _run_check("job", lambda: _job(spec_file))
    given = settings.find_registry(choice.registry, spec_file.spec.registry)
    place, origin = (given.text, given.place) if given else (spec_file.spec.registry, spec_file.locate("registry"))
    if place is None:
        hint = "give `registry:` in the spec, --registry HOST/PATH, or IMGTOOL_REGISTRY"
        yield Check(name="registry", ok=False, text="none named", hint=hint, needed=False)
        yield _run_check("images", lambda: _images(spec_file, settings, None))
        return
    checked = _run_check("registry", lambda: f"{_registry(place, spec_file.spec.name, settings)} ({origin})")
    yield checked
    if checked.ok:
        yield _run_check("images", lambda: _images(spec_file, settings, place))


def _lock(spec_file: SpecFile) -> str:
    """Describes what the next build does with the lock; raises an error if the versions or requirements are wrong."""
    from training_imgtool.model.requirement_files import read_texts
    from training_imgtool.model.requirements import parse_requirements
    from training_imgtool.resolve.frameworks import rules_of
    from training_imgtool.resolve.lock.lockfile import lock_inputs, lock_path, read_lock
    from training_imgtool.resolve.versions.matrix import load_matrix
    from training_imgtool.resolve.versions.resolve import resolve

    path = lock_path(spec_file)
    if path.exists() and read_lock(path).inputs == lock_inputs(spec_file):
        return f"{path} is current"
    try:
        parse_requirements(read_texts(spec_file))
        matrix, spec = load_matrix(), spec_file.spec
        if rules_of(spec.framework).needs_index(matrix, spec.release):
            what = f"{spec.framework.title} {spec.release}"
            return f"the next build will make {path}: the index knows what {what} needs"
        resolve(spec, matrix)
    except FieldError as error:
        raise spec_file.located(error) from error
    return f"the next build will make {path}"


def _job(spec_file: SpecFile) -> str:
    from training_imgtool.jobs import check_job

    check_job(spec_file)
    target = spec_file.spec.job.target
    return f"{target} would accept it" if target else "the spec names no job.target, which config needs"


def _images(spec_file: SpecFile, settings: Settings, place: str | None) -> str:
    """Describes what a build with the current lock would do; raises that build's errors about the trainer or engine."""
    from training_imgtool.make.dry_run import dry_run
    from training_imgtool.make.request import BuildOptions, BuildRun
    from training_imgtool.make.trainer_check import check_trainer
    from training_imgtool.oci.machine import Machine
    from training_imgtool.plan.inputs import prepare
    from training_imgtool.plan.project_files import SpecChoice
    from training_imgtool.resolve.lock.lockfile import lock_inputs, lock_path, read_lock

    path = lock_path(spec_file)
    if not path.exists() or read_lock(path).inputs != lock_inputs(spec_file):
        return "not checked: there is no current lock; `imgtool lock` makes it"
    with Machine.open(settings) as machine:
        inputs = prepare(spec_file, machine, SpecChoice(registry=place, locked=True))
        if place is None:
            check_trainer(inputs, machine)
            return "the trainer can start"
        foreseen = dry_run(BuildRun(inputs=inputs, options=BuildOptions(push=True), machine=machine))
    return ", ".join(f"{role} {'is there' if what == 'found' else 'would be built'}" for role, what in foreseen.items())


def _registry(place: str, name: str, settings: Settings) -> str:
    from training_imgtool.base.reference import parse_repository
    from training_imgtool.oci.registry.connect import Registries

    repository = parse_repository(f"{place.rstrip('/')}/{name}")
    with Registries(settings) as registries:
        login = registries.login(repository.registry)
        registries.at(repository).head(repository.tag("imgtool-doctor"))
    return f"{repository} answers; login: {login.name}"
