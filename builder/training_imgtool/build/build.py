"""The verbs as functions: where inputs, builders, the registry and job files come together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.build.inputs import Inputs, RoleImage
from training_imgtool.build.request import BuildResult, BuildRun, tag_of
from training_imgtool.core.errors import EngineUnavailableError, InputError, UsageError
from training_imgtool.core.progress import Done, Note, Outcome, Progress
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.threads import run_all
from training_imgtool.spec.model import Role

_MUCH_CODE = 100_000_000  # bytes

if TYPE_CHECKING:
    from training_imgtool.build.role_build import RoleBuild
    from training_imgtool.direct.registry.evidence import Evidence
    from training_imgtool.direct.registry.memory import RepositoryMemory
    from training_imgtool.direct.registry.pending_heads import Asked
    from training_imgtool.registry.connect import Registries


def build(work: BuildRun) -> tuple[BuildResult, ...]:
    """Makes sure that the selected roles' images exist: in the registry with `push`, else in the engine.

    Raises what the steps raise. The tags that the user named move only when every role is up.
    """
    from training_imgtool.direct.registry.evidence import Evidence
    from training_imgtool.registry.connect import connect

    if not work.options.push:
        return _built_here(work)
    with connect(work.settings, work.progress) as registries:
        believe = not work.options.no_cache
        evidence = Evidence(registries, work.inputs.repository, work.settings.cache, believe=believe)
        likely_new = _likely_new(work, evidence.memory)
        made, found = _ahead(work, registries, evidence) if likely_new else ({}, _present(work, registries, evidence))
        missing = tuple(image for image in work.wanted if image.role not in made and found[image.role] is None)
        if missing and not made:
            _note_size(work)
        made |= _make(work, missing, registries, evidence) if missing else {}
        results = tuple(made.get(image.role) or _found(image, found[image.role]) for image in work.wanted)
        for image in work.wanted:
            evidence.memory.add_tag(tag_of(image).name)
        for name in work.options.tags:
            run_all({result.role: partial(_name, result, name, work, registries) for result in results})
    return results


def _note_size(work: BuildRun) -> None:
    """Says when the code is so large that it must have data in it, which every change of a line would send again."""
    files = work.inputs.context.on_disk()
    size = sum(entry.size for entry in files)
    if size > _MUCH_CODE:
        largest = max(files, key=lambda entry: entry.size)
        work.progress(
            Note(
                f"{size / 1e6:.0f} MB of files go into the images with the code, {largest.size / 1e6:.0f} MB of it "
                f"{largest.path}; what is data belongs in a bucket and in .dockerignore"
            )
        )


def _likely_new(work: BuildRun, memory: RepositoryMemory) -> bool:
    """Whether this machine knows what the images will be appended to, and has never seen any of them."""
    options = work.options
    if options.no_cache or options.create_repository or options.engine == "docker":
        return False
    if any(memory.has_tag(tag_of(image).name) for image in work.wanted):
        return False
    return _remembered(work, work.wanted[0], memory)


def _ahead(
    work: BuildRun, registries: Registries, evidence: Evidence
) -> tuple[dict[Role, BuildResult], dict[Role, Digest | None]]:
    """Makes images directly while the registry is asked for them; nothing is sent before its answer has come.

    Returns what was made or found, and what the registry answered for the others.
    """
    from training_imgtool.direct.registry.pending_heads import Asked

    _note_size(work)
    asked = Asked({tag_of(image): partial(evidence.find, tag_of(image)) for image in work.wanted})
    try:
        ways, reasons = _ways(work, work.wanted)
        made = (
            _appended(work, ways, registries, reasons, evidence, asked=asked) if len(ways) == len(work.wanted) else {}
        )
        rest = (image for image in work.wanted if image.role not in made)
        return made, {image.role: asked.digest(tag_of(image)) for image in rest}
    finally:
        asked.close()


def _present(work: BuildRun, registries: Registries, evidence: Evidence) -> dict[Role, Digest | None]:
    """Which of the wanted images are in the registry; nothing is asked when they are to be made anyway.

    A machine that has never seen the stage below the roles asks for one role first. When that is missing, the others
    that would be appended to the same stage are made without asking: sending what is new of them says as much, as
    the request that begins it asks for it too.
    """
    unknown: dict[Role, Digest | None] = dict.fromkeys(image.role for image in work.wanted)
    if work.options.no_cache:
        return unknown
    first, *others = work.wanted
    if not others or _remembered(work, first, evidence.memory):
        return find_images(work.inputs, work.wanted, registries, work.progress, evidence.find)
    found = find_images(work.inputs, (first,), registries, work.progress, evidence.find)
    if found[first.role] is None:
        ways, _ = _ways(work, work.wanted)
        made = {way.image.role for way in ways} if first.role in {way.image.role for way in ways} else set()
        others = [image for image in others if image.role not in made]
    return unknown | found | find_images(work.inputs, tuple(others), registries, work.progress, evidence.find)


def _remembered(work: BuildRun, image: RoleImage, memory: RepositoryMemory) -> bool:
    """Whether this machine knows the image that the role's would be appended to."""
    from training_imgtool.direct.registry.memory import tag_of_stage

    label = image.dockerfile.stages[-1].base
    if label not in image.keys:
        return True
    return memory.has_stage(tag_of_stage(work.inputs.repository, label, image.keys[label]))


def _built_here(work: BuildRun) -> tuple[BuildResult, ...]:
    """Without a registry: into an OCI layout, or into the engine's store."""
    from training_imgtool.build import engine_build, local_output
    from training_imgtool.registry.connect import connect

    _note_size(work)
    if work.options.layout is not None:
        with connect(work.settings, work.progress) as registries:
            return local_output.write_images(work, work.options.layout, registries)
    try:
        with engine_build.open_engine(work.settings) as engine:
            if work.options.engine != "direct":
                return engine_build.build_locally(work, engine)
            with connect(work.settings, work.progress) as registries:
                return local_output.load_images(work, engine, registries)
    except EngineUnavailableError as error:
        if work.options.engine == "auto":
            error.hint = "; or ".join(filter(None, (error.hint, _without_engine(work))))
        raise


def _without_engine(work: BuildRun) -> str:
    """What works where no engine does, or what an engine is needed for."""
    ways, reasons = _ways(work, work.wanted)
    stages = {
        f"stage {stage.label}: {way.chain.reasons[stage.label]}" for way in ways if (stage := way.chain.engine_stage)
    }
    needed = [*reasons.values(), *sorted(stages)]
    if needed:
        return f"build where one answers ({needed[0]})"
    return "let imgtool build without one: --push, or --output oci:DIR"


def _make(
    work: BuildRun, missing: tuple[RoleImage, ...], registries: Registries, evidence: Evidence
) -> dict[Role, BuildResult]:
    if work.options.create_repository:
        from training_imgtool.registry.auth.google import create_repository

        create_repository(work.inputs.repository, work.settings, work.progress)
    ways, reasons = _ways(work, missing)
    made = _appended(work, ways, registries, reasons, evidence) if ways else {}
    rest = tuple(image for image in missing if image.role not in made)
    for role, reason in reasons.items():
        work.progress(Note(f"{role}: for an engine: {reason}"))
    if rest:
        from training_imgtool.build import engine_build

        with engine_build.open_engine(work.settings) as engine:
            made |= engine_build.make(work, rest, engine, registries)
    return made


def _ways(work: BuildRun, images: tuple[RoleImage, ...]) -> tuple[tuple[RoleBuild, ...], dict[Role, str]]:
    """Which images can be made without an engine, and why the others cannot."""
    from training_imgtool.build.role_build import way
    from training_imgtool.core.errors import NeedsEngineError

    if work.options.engine == "docker":
        return (), {}
    ways, reasons = [], {}
    for image in images:
        try:
            ways.append(way(work.inputs, image))
        except NeedsEngineError as error:
            if work.options.engine == "direct":
                raise
            reasons[image.role] = str(error)
    return tuple(ways), reasons


def _appended(
    work: BuildRun,
    ways: tuple[RoleBuild, ...],
    registries: Registries,
    reasons: dict[Role, str],
    evidence: Evidence,
    *,
    asked: Asked | None = None,
) -> dict[Role, BuildResult]:
    """Makes images directly; what turns out to be for an engine after all is left out, with the reason."""
    from training_imgtool.build.append import DirectBuilder
    from training_imgtool.direct.registry.publish import Publisher

    publisher = Publisher(registries, evidence, work.progress, asked)
    try:
        made, unproven = DirectBuilder(work, registries, publisher).make(ways)
    except BaseException:
        publisher.close()
        raise
    publisher.close(wait=True)  # uploads that turned out to be needless are ended properly
    for role, error in unproven.items():
        if work.options.engine == "direct":
            raise error
        reasons[role] = str(error)
    return made


def _found(image: RoleImage, digest: Digest | None) -> BuildResult:
    return BuildResult(role=image.role, outcome=Outcome.FOUND, key=image.key, tag=image.tag, digest=digest)


def _name(result: BuildResult, name: str, work: BuildRun, registries: Registries) -> None:
    """Gives an image a further tag; with several roles the role comes first, as in `worker-NAME`."""
    if result.digest is None:
        raise UsageError("--tag names images in the registry", hint="add --push")
    tag = result.digest.repository.tag(name if len(work.wanted) == 1 else f"{result.role}-{name}")
    registry = registries.at(tag.repository)
    manifest = registry.manifest(result.digest)
    registry.put_manifest(tag, manifest.media_type, manifest.body)
    work.progress(Note(f"{result.role}: tagged {tag}"))


def find_images(
    inputs: Inputs,
    wanted: tuple[RoleImage, ...],
    registries: Registries,
    progress: Progress,
    find: Callable[[Tag], Digest | None] | None = None,
) -> dict[Role, Digest | None]:
    """Asks the registry for each image by its content key: one HEAD per role, side by side, or `find` for its tag."""
    repository = inputs.repository

    def head(tag: Tag) -> Digest | None:
        digest = registries.at(repository).head(tag)
        return repository.digest(digest) if digest else None

    def ask(image: RoleImage) -> Digest | None:
        started = time.monotonic()
        digest = (find or head)(tag_of(image))
        if digest is not None:
            progress(Done(image.role, Outcome.FOUND, str(image.tag), time.monotonic() - started))
        return digest

    return run_all({image.role: partial(ask, image) for image in wanted})


def require_images(inputs: Inputs, registries: Registries, progress: Progress) -> Mapping[Role, Digest]:
    """Every role's digest; raises InputError that names what is not in the registry and how to get it there."""
    found = find_images(inputs, inputs.images, registries, progress)
    there = {role: digest for role, digest in found.items() if digest is not None}
    missing = [role for role in found if role not in there]
    if missing:
        names = ", ".join(missing)
        raise InputError(
            f"{len(missing)} of {len(found)} images of the current inputs are not in the registry: {names}",
            hint=f"imgtool push {inputs.spec_file.path}",
            details=tuple(f"{image.role}: {image.tag}" for image in inputs.images if image.role in missing),
        )
    return there


def foresee(work: BuildRun) -> dict[Role, str]:
    """What `build` would do with each role, by asking only: `found`, or `build` with where it would go."""
    if not work.options.push:
        from training_imgtool.build import engine_build

        with engine_build.open_engine(work.settings) as engine:
            return {image.role: "found" if engine.image_id(image.key) else "build" for image in work.wanted}
    from training_imgtool.registry.connect import connect

    with connect(work.settings, work.progress) as registries:
        found = find_images(work.inputs, work.wanted, registries, work.progress)
    return {role: "build-and-push" if digest is None else "found" for role, digest in found.items()}
