"""`doctor`: checks everything that a build needs on this machine, and names the cure for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import EngineUnavailableError, FieldError, ImgtoolError, InputError, UsageError
from training_imgtool.core.settings import Settings
from training_imgtool.core.threads import SEVERITY_ORDER

_KEYS = ("cosign.key", "cosign.pub")

if TYPE_CHECKING:
    from training_imgtool.engines.buildx.builders import BuilderInfo
    from training_imgtool.spec.load import SpecFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at.

    Attributes:
        name: what it is.
        ok: whether it is there.
        text: what imgtool found.
        hint: what to do, or None.
        needed: off for what imgtool can do without.
        code: that of a build that lacks it.
        facts: the same for programs, such as the list of builders.
    """

    name: str
    ok: bool
    text: str
    hint: str | None = None
    needed: bool = True
    code: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """The check as plain data."""
        data = {"name": self.name, "ok": self.ok, "needed": self.needed, "text": self.text, "hint": self.hint}
        return {**data, "facts": dict(self.facts)}

    def as_line(self) -> str:
        """The check for people."""
        mark = "ok     " if self.ok else "missing" if self.needed else "absent "
        return f"{mark} {self.name}: {self.text}" + (f"\n        {self.hint}" if self.hint and not self.ok else "")


def examine(where: Path | None, settings: Settings, *, registry: str | None = None) -> tuple[Check, ...]:
    """Looks at the resolver, the cache, the engine, and, where there is a spec, its lock and its registry."""
    checks = [
        _run_check("uv", _uv),
        _run_check("cache", lambda: _cache(settings)),
        _run_check("engine", lambda: _engine(settings), needed=False),
        _builders(settings),
        _signing(where, settings),
    ]
    return (*checks, *_of_spec(where, settings, registry))


def _run_check(name: str, look: Callable[[], str], *, needed: bool = True) -> Check:
    try:
        return Check(name=name, ok=True, text=look(), needed=needed)
    except ImgtoolError as error:
        return Check(name=name, ok=False, text=str(error), hint=error.hint, needed=needed, code=error.exit_code)


def exit_code(checks: tuple[Check, ...]) -> int:
    """0 when nothing that is needed is missing, else the code of the gravest lack; files come first, as in a build."""
    missing = {check.code for check in checks if check.needed and not check.ok}
    if InputError.exit_code in missing:
        return InputError.exit_code
    return next((code for code in SEVERITY_ORDER if code in missing), 0)


def _uv() -> str:
    from training_imgtool.wheels.uv import read_version

    return read_version()


def _cache(settings: Settings) -> str:
    from training_imgtool.commands.prune import prune_cache
    from training_imgtool.core.atomic_files import check_writable

    there = next(folder for folder in (settings.cache, *settings.cache.absolute().parents) if folder.exists())
    check_writable(there / "probe")
    size = sum(part.size for part in prune_cache(settings.cache, 0, dry_run=True))
    return f"{settings.cache} can be written, holds {size / 1e6:.0f} MB (imgtool prune)"


def _engine(settings: Settings) -> str:
    from training_imgtool.engines.docker.client import connect

    engine = connect(settings)
    try:
        return engine.name
    finally:
        engine.close()


def _builders(settings: Settings) -> Check:
    """The builders of buildx. Only one that IMGTOOL_BUILDER names is needed."""
    from training_imgtool.engines.buildx.builders import list_builders

    wanted, needed = settings.builder or settings.environ.get("BUILDX_BUILDER"), settings.builder is not None
    try:
        builders = list_builders(settings)
    except ImgtoolError as error:
        text, hint, code = str(error), error.hint, error.exit_code
        return Check(name="builders", ok=False, text=text, hint=hint, needed=needed, code=code)
    facts = {"builders": [builder.as_data() for builder in builders]}
    text = "; ".join(map(_describe_builder, builders)) or "buildx has none"
    chosen = [builder for builder in builders if (builder.name == wanted if wanted else builder.current)]
    if any(builder.running for builder in chosen):
        return Check(name="builders", ok=True, text=text, needed=needed, facts=facts)
    name = wanted or "the current builder"
    hint = f"{name} does not run: start it, or name another one in IMGTOOL_BUILDER; `docker buildx create` makes one"
    return Check(
        name="builders",
        ok=False,
        text=text,
        hint=hint,
        needed=needed,
        code=EngineUnavailableError.exit_code,
        facts=facts,
    )


def _describe_builder(builder: BuilderInfo) -> str:
    state = "running" if builder.running else builder.error or "not running"
    words = [builder.driver or "driver unknown", *builder.endpoints, state, *(("current",) if builder.current else ())]
    return f"{builder.name} ({', '.join(words)})"


def _of_spec(where: Path | None, settings: Settings, registry: str | None) -> Iterator[Check]:
    from training_imgtool.pipeline.shared_reads import open_spec

    try:
        spec_file = open_spec(where)
    except ImgtoolError as error:
        needed = where is not None or not isinstance(error, UsageError)  # without one here there is nothing to check
        yield Check(name="spec", ok=False, text=str(error), hint=error.hint, needed=needed, code=error.exit_code)
        return
    yield Check(name="spec", ok=True, text=str(spec_file.path))
    yield _run_check("lock", lambda: _lock(spec_file))
    yield _run_check("job", lambda: _job(spec_file))
    place = registry or settings.registry or spec_file.spec.registry
    if place is None:
        hint = "give `registry:` in the spec, --registry HOST/PATH, or IMGTOOL_REGISTRY"
        yield Check(name="registry", ok=False, text="none named", hint=hint, needed=False)
        yield _run_check("images", lambda: _images(spec_file, settings, None))
        return
    checked = _run_check("registry", lambda: _registry(place, spec_file.spec.name, settings))
    yield checked
    if checked.ok:
        yield _referrers(place, spec_file.spec.name, settings)
        yield _run_check("images", lambda: _images(spec_file, settings, place))


def _lock(spec_file: SpecFile) -> str:
    """What the next build does about the lock; raises what is wrong with the versions and the requirements."""
    from training_imgtool.lock.lockfile import lock_inputs, lock_path, read_lock
    from training_imgtool.spec.requirements import parse_requirements, read_texts
    from training_imgtool.versions.matrix import load_matrix
    from training_imgtool.versions.resolve import resolve

    path = lock_path(spec_file)
    if path.exists() and read_lock(path).inputs == lock_inputs(spec_file):
        return f"{path} is current"
    try:
        parse_requirements(read_texts(spec_file))
        resolve(spec_file.spec, load_matrix())
    except FieldError as error:
        raise spec_file.located(error) from error
    return f"{path} will be made by the next build"


def _job(spec_file: SpecFile) -> str:
    from training_imgtool.jobs.spec_check import check_job

    return "; ".join(check_job(spec_file)) or f"{spec_file.spec.job.target} would take it"


def _images(spec_file: SpecFile, settings: Settings, place: str | None) -> str:
    """What a build of the current lock would do; raises what it would raise: for the trainer, and for an engine."""
    from training_imgtool.core.progress import silent
    from training_imgtool.lock.lockfile import lock_inputs, lock_path, read_lock
    from training_imgtool.pipeline.foresee import foresee
    from training_imgtool.pipeline.inputs import prepare
    from training_imgtool.pipeline.request import BuildOptions, BuildRun
    from training_imgtool.pipeline.trainer_check import check_trainer

    path = lock_path(spec_file)
    if not path.exists() or read_lock(path).inputs != lock_inputs(spec_file):
        return "not checked: there is no current lock; `imgtool lock` makes it"
    inputs = prepare(spec_file, settings, silent, registry=place, locked=True)
    if place is None:
        check_trainer(inputs, settings, silent)
        return "the trainer can start"
    options = BuildOptions(push=True)
    foreseen = foresee(BuildRun(inputs=inputs, options=options, settings=settings, progress=silent))
    return ", ".join(f"{role} {'is there' if what == 'found' else 'would be built'}" for role, what in foreseen.items())


def _registry(place: str, name: str, settings: Settings) -> str:
    from training_imgtool.core.reference import parse_repository
    from training_imgtool.registry.connect import connect

    repository = parse_repository(f"{place.rstrip('/')}/{name}")
    with connect(settings) as registries:
        login = registries.login(repository.registry)
        registries.at(repository).head(repository.tag("imgtool-doctor"))
    return f"{repository} answers; login: {login.name}"


def _referrers(place: str, name: str, settings: Settings) -> Check:
    """Whether the registry lists attestations and signatures itself; imgtool does without."""
    from training_imgtool.core.reference import parse_repository
    from training_imgtool.registry.connect import connect

    repository = parse_repository(f"{place.rstrip('/')}/{name}")
    try:
        with connect(settings) as registries:
            listed = registries.at(repository).find_referrers(repository.digest(f"sha256:{'0' * 64}"))
    except ImgtoolError as error:
        return Check(name="referrers", ok=False, text=str(error), hint=error.hint, needed=False)
    text = "the registry lists attestations and signatures of an image"
    if listed is None:
        text = "the registry has no referrers API: attestations and signatures are listed under the tag sha256-DIGEST"
    return Check(name="referrers", ok=listed is not None, text=text, needed=False, facts={"api": listed is not None})


def _signing(where: Path | None, settings: Settings) -> Check:
    """The keys called cosign.key and cosign.pub here and beside the spec; `imgtool sign` takes any other by name."""
    folder = where if where is None or where.is_dir() else where.parent
    places = dict.fromkeys(place / name for place in (Path(), folder or Path()) for name in _KEYS)
    keys = [_key(path, settings) for path in places if path.is_file()]
    if not keys:
        hint = "`cosign generate-key-pair` makes one; `imgtool sign --key FILE` takes a key from anywhere"
        return Check(name="signing", ok=False, text="no cosign.key here", hint=hint, needed=False, facts={"keys": []})
    text = "; ".join(f"{key['path']}: {key['error'] or key['kind']}" for key in keys)
    return Check(
        name="signing", ok=not any(key["error"] for key in keys), text=text, needed=False, facts={"keys": keys}
    )


def _key(path: Path, settings: Settings) -> dict[str, Any]:
    from training_imgtool.attest.keys import read_private_key, read_public_key

    def password() -> str:
        names = ("IMGTOOL_KEY_PASSWORD", "COSIGN_PASSWORD")
        given = [settings.environ[name] for name in names if name in settings.environ]
        if not given:
            raise UsageError("encrypted, and neither IMGTOOL_KEY_PASSWORD nor COSIGN_PASSWORD is set")
        return given[0]

    is_private, error = path.suffix == ".key", None
    try:
        if is_private:
            read_private_key(path, password)
        else:
            read_public_key(path)
    except ImgtoolError as raised:
        error = str(raised)
    kind = f"a {'private' if is_private else 'public'} key of ECDSA on P-256"
    return {"path": str(path), "kind": kind, "error": error}
