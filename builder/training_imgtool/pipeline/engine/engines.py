"""The engines of one run: an engine with a store of its own, or buildx. The seam for further ones is `Engines.push`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Self

from training_imgtool.context.entries import Kind
from training_imgtool.core.atomic_files import hold_lock
from training_imgtool.core.errors import (
    EngineUnavailableError,
    InputError,
    NeedsEngineError,
    RegistryRefusedError,
    VerificationError,
)
from training_imgtool.core.progress import Done, Note, Outcome, Progress, Step
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.core.threads import SingleFlight
from training_imgtool.direct.image.docker_archive import load_archive
from training_imgtool.direct.image.image import DirectImage, read_config
from training_imgtool.direct.registry.stored_stages import tag_of_stage
from training_imgtool.dockerfile.mounts import (
    buildkit_syntax,
    classic_refusal,
    find_run_after_volume,
    list_secrets,
    needed_stages,
    podman_refusal,
)
from training_imgtool.dockerfile.parse import Instruction
from training_imgtool.engines import NoClassicBuilderError
from training_imgtool.engines.stage_runner import Recipe, StageRunner
from training_imgtool.pipeline.find import find_image
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.pipeline.request import BuildRun, missing_push
from training_imgtool.pipeline.run_wheels import WheelContext

if TYPE_CHECKING:
    from training_imgtool.engines.docker.engine import DockerEngine
    from training_imgtool.pipeline.engine.buildx_engine import BuildxEngine, StageImages
    from training_imgtool.registry.client import Registry
    from training_imgtool.registry.connect import Registries
    from training_imgtool.registry.manifests import Manifest


class Engines:
    """Runs stages for one run on the engine that fits, which it opens when a stage first needs it. Thread-safe.

    Args:
        run: the run.
        registries: the clients.
        engine: an open engine; without it, `Engines` opens the one that the settings name, and closes it.
        hint: says what to do where no engine answers and none was asked for.
    """

    def __init__(
        self,
        run: BuildRun,
        registries: Registries,
        engine: DockerEngine | None = None,
        *,
        hint: Callable[[], str] = str,
    ) -> None:
        self._run = run
        self._hint = hint
        self._registries = registries
        self._given = engine
        self._opened: DockerEngine | None = None
        self._runners: SingleFlight[tuple[DockerEngine, StageRunner]] = SingleFlight()
        self._buildxes: SingleFlight[BuildxEngine] = SingleFlight()
        self._buildx: BuildxEngine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()
        if self._buildx is not None:
            self._buildx.close()

    @property
    def engine(self) -> DockerEngine:
        """The engine; raises EngineUnavailableError when none answers."""
        return self._runners.do("engine", self._open)[0]

    def require(self, image: RoleImage, label: str, reason: str) -> None:
        """Raises EngineUnavailableError with the reason when no engine answers, or the options allow none."""
        if self._run.options.engine == "direct":
            raise NeedsEngineError(f"the stage {label} needs an engine: {reason}", hint="leave out --engine direct")
        try:
            if self._buildx_for(image, label) is None:
                self._runners.do("engine", self._open)
        except EngineUnavailableError as error:
            message = f"the stage {label} needs an engine ({reason}): {error.message}"
            hint = "; ".join(filter(None, (error.hint, "or have a builder of buildx run it: --builder NAME")))
            raise EngineUnavailableError(message, hint=hint, details=error.details) from error

    def build(self, image: RoleImage, label: str) -> str:
        """Builds a stage in the engine's own store and returns its image ID; raises what `StageRunner.run` raises."""
        (recipe,) = self._recipes((image, label))
        return self._runner.run((recipe,))[recipe.subject]

    def build_all(self, images: tuple[RoleImage, ...]) -> None:
        """Builds whole images side by side in the engine's own store; raises the gravest failure."""
        recipes = self._recipes(*((image, image.label) for image in images))  # refuses before the engine is opened
        self._runner.run(recipes)

    def _recipes(self, *wanted: tuple[RoleImage, str]) -> tuple[Recipe, ...]:
        """Returns what the engine needs to make stages; raises InputError for what only BuildKit has."""
        for image, label in wanted:
            _refuse_secrets(image, label)
        context = self._run.inputs.context
        if self.engine.refuses_unknown:
            folders = {str(folder) for entry in context.on_disk() for folder in PurePosixPath(entry.path).parents}
            refusal = partial(podman_refusal, folders=folders)
        else:
            links = {entry.path for entry in context.entries if entry.kind is Kind.SYMLINK}
            refusal = partial(classic_refusal, links=links)
        for image, label in wanted:
            _refuse(image, label, refusal)
            if step := find_run_after_volume(image.dockerfile, image.dockerfile.stage(label)):
                raise _needs_buildkit(image, step, "RUN after VOLUME")
        return tuple(_recipe(image, label) for image, label in wanted)

    def push(self, image: RoleImage, label: str, tag: Tag, images: StageImages, *, anew: bool = False) -> Digest:
        """Runs a stage and pushes it under a tag; returns the digest that the registry answers for.

        What a RUN makes differs from run to run, and one key has one digest: so runs that share a cache take turns, and
        take what another one pushed meanwhile, also one on another machine.

        Args:
            image: the image that the stage belongs to.
            label: the stage's.
            tag: where it goes.
            images: makes sure of the stages that the stage starts from.
            anew: pushes it in any case, as the registry has lost a part of what it has under the tag.

        Raises what building raises, and what `push_tag` raises.
        """
        subject, cache = image.subject_of(label), self._run.settings.cache

        def find() -> Digest | None:
            found = None if anew or self._run.options.no_cache else find_image(self._registries, tag)
            if found is not None:
                self._run.progress(Done(subject, Outcome.FOUND, f"{tag}: another run has pushed it"))
            return found

        with suppress(OSError):
            (cache / "stages").mkdir(parents=True, exist_ok=True)
        with hold_lock(cache / "stages" / tag.name, lambda note: self._run.progress(Note(f"{subject}: {note}"))):
            return find() or self._push(image, label, tag, images, find)

    def _push(
        self, image: RoleImage, label: str, tag: Tag, images: StageImages, find: Callable[[], Digest | None]
    ) -> Digest:
        if (buildx := self._buildx_for(image, label)) is not None:
            return buildx.push(image, label, tag, images)
        try:
            if not (self._run.options.only_engine or self._run.options.no_cache):
                self._pull_below(image, label, images)
            image_id = self.build(image, label)
        except NoClassicBuilderError as error:
            if self._run.options.engine == "docker":
                raise
            self._run.progress(Note(f"{image.subject_of(label)}: {error.message}; buildx runs it"))
            return self._open_buildx().push(image, label, tag, images)
        if (other := find()) is not None:
            return other
        subject, started = image.subject_of(label), time.monotonic()
        is_new = self.engine.tag(image_id, tag)
        try:
            pushed = push_tag(self.engine, image_id, tag, self._registries, self._run.progress, subject=subject)
        finally:
            if is_new:
                self.engine.untag(tag)
        self._run.progress(Done(subject, Outcome.PUSHED, str(pushed), time.monotonic() - started))
        return pushed

    def _pull_below(self, image: RoleImage, label: str, images: StageImages) -> None:
        """Has the engine pull what the stage starts from, so that it builds this stage only."""
        dockerfile, stage = image.dockerfile, image.dockerfile.stage(label)
        below = dockerfile.earlier(stage.base, stage)
        while below is not None and not below.instructions:
            below = dockerfile.earlier(below.base, below)
        if below is None:
            return
        self._recipes((image, label))  # refuses before anything is made
        with suppress(NeedsEngineError):  # the engine makes what imgtool cannot, such as bytecode without this Python
            digest = images.image_of(image, below.label)
            _pull_stage(self._run, digest, image.keys[below.label], self.engine, self._registries)

    def uses_buildx(self, image: RoleImage, label: str) -> bool:
        """Returns whether buildx runs this stage, and not an engine with a store of its own."""
        return self._buildx_for(image, label) is not None

    def compile(self, image: RoleImage, label: str, tag: Tag, below: Digest) -> Digest:
        """Has the builder make bytecode for /opt/venv on an image, and pushes the result; raises as `push`."""
        return self._open_buildx().compile(image, label, tag, below)

    def _buildx_for(self, image: RoleImage, label: str) -> BuildxEngine | None:
        """Finds the builder that runs a stage: if options or machine name one, or the stage needs BuildKit.

        None for the engine. Raises EngineUnavailableError when buildx is named and not installed.
        """
        options = self._run.options
        if options.engine in {"direct", "docker"} or self._given is not None:
            return None
        if options.engine == "buildx" or options.builder or self._run.settings.builder:
            return self._open_buildx()
        if buildkit_syntax(image.dockerfile, label) is None:
            return None
        try:
            return self._open_buildx()
        except EngineUnavailableError:
            _refuse_secrets(image, label)
            return None  # Podman's service takes mounts too; Docker's says that it needs BuildKit

    def _open_buildx(self) -> BuildxEngine:
        def open_buildx() -> BuildxEngine:
            from training_imgtool.pipeline.engine.buildx_engine import BuildxEngine

            name = self._run.options.builder or self._run.settings.builder
            self._buildx = BuildxEngine(self._run, self._registries, name)
            return self._buildx

        return self._buildxes.do("buildx", open_buildx)

    @property
    def _runner(self) -> StageRunner:
        return self._runners.do("engine", self._open)[1]

    def _open(self) -> tuple[DockerEngine, StageRunner]:
        run = self._run
        engine = self._given
        if engine is None:
            from training_imgtool.engines.docker.client import connect

            try:
                engine = self._opened = connect(run.settings)
            except EngineUnavailableError as error:
                if run.options.only_engine and run.options.engine == "auto":
                    error.hint = "; or ".join(filter(None, (error.hint, self._hint())))
                raise
        runner = StageRunner(
            engine,
            WheelContext(run.inputs, run.settings, run.progress).write,
            platform=run.inputs.plan.platform,
            login_for=lambda host: self._registries.login(host).login,
            progress=run.progress,
            no_cache=run.options.no_cache,
        )
        return engine, runner


def pull_parents(
    run: BuildRun, images: tuple[RoleImage, ...], engine: DockerEngine, registries: Registries, repository: Repository
) -> None:
    """Pulls the stages that roles start from, where the repository has them, so that an engine builds the rest only.

    Raises RegistryRefusedError, CredentialsError, TemporaryError, EngineUnavailableError.
    """
    parents = {}
    for image in images:
        own = image.dockerfile.stages[-1]
        parent = image.dockerfile.earlier(own.base, own)
        if parent is not None and engine.image_id(image.key) is None:
            parents[image.keys[parent.label]] = parent.label
    for key, label in parents.items():
        if engine.image_id(key) is not None:
            continue
        stored = registries.at(repository).head(tag_of_stage(repository, label, key))
        if stored is not None:
            _pull_stage(run, repository.digest(stored), key, engine, registries)


def _pull_stage(run: BuildRun, stage: Digest, key: str, engine: DockerEngine, registries: Registries) -> None:
    """Pulls the image of a stage, and names it so that the engine does not build it."""
    platform = run.inputs.plan.platform
    name = pull_image(stage, key, platform=platform, engine=engine, registries=registries, progress=run.progress)
    engine.name_stage(name, key)


def _refuse_secrets(image: RoleImage, label: str) -> None:
    """Raises InputError for a stage that mounts a secret, which only BuildKit does."""
    _refuse(image, label, lambda step: "RUN --mount=type=secret" if list_secrets(step) else None)


def _refuse(image: RoleImage, label: str, needs_buildkit: Callable[[Instruction], str | None]) -> None:
    """Raises InputError for the first instruction of the stage, or of one below it, that `needs_buildkit` names."""
    for stage in needed_stages(image.dockerfile, image.dockerfile.stage(label)):
        for instruction in stage.instructions:
            if syntax := needs_buildkit(instruction):
                raise _needs_buildkit(image, instruction, syntax)


def _needs_buildkit(image: RoleImage, step: Instruction, what: str) -> InputError:
    return InputError(
        f"{image.dockerfile.file}:{step.line}: {what} needs BuildKit",
        hint="--engine buildx and --push, with Docker's buildx plugin installed",
    )


def _recipe(image: RoleImage, label: str) -> Recipe:
    shared = {name: image.subject_of(name) for name in image.keys if name != image.label}
    subject = image.subject_of(label)
    return Recipe(subject=subject, dockerfile=image.dockerfile, target=label, keys=image.keys, shared=shared)


def push_tag(
    engine: DockerEngine, image_id: str, tag: Tag, registries: Registries, progress: Progress, *, subject: str
) -> Digest:
    """Pushes an image that has the tag already; returns its digest once the registry has answered with that image.

    The answer proves nothing, and Podman and Docker's containerd image store name no digest. An image ID is the
    digest of the image's config, or, with the containerd image store, of its manifest.
    Raises what pushing and asking raise, and VerificationError when the registry has another image, or none.
    """
    login = registries.login(tag.repository.registry).login
    named = engine.push(tag, login, progress, subject=subject)
    places: list[Tag | Digest] = [tag]
    places += map(tag.repository.digest, filter(None, (named, image_id)))  # another machine may have moved the tag
    stored = None
    for place in places:
        try:
            stored = registries.at(tag.repository).manifest(place)
        except RegistryRefusedError:
            continue
        if image_id == stored.digest or (not stored.is_index and image_id == stored.config.digest):
            return tag.repository.digest(stored.digest)
    if stored is None:
        raise missing_push(tag)
    raise VerificationError(
        f"{tag}: the engine reported the push of {image_id[:19]} as done, but the registry has another image there",
        hint="run the same command again",
    )


def pull_image(
    digest: Digest,
    key: str,
    *,
    platform: str,
    engine: DockerEngine,
    registries: Registries,
    progress: Progress,
) -> str:
    """Returns the name that the engine knows the image by: its digest, or the image's ID.

    Docker before 23 unpacks no zstd layer. It gets such an image as `docker load` reads it, with those layers unpacked:
    the config is the same, and with it the image's ID.

    Args:
        digest: the image.
        key: its content key; a loaded image gets the name `imgtool/stage:<key>`.
        platform: such as `linux/amd64`.
        engine: where the image goes.
        registries: read the image, and have the login for an engine that pulls.
        progress: receives the steps.

    Raises what `DockerEngine.pull_base`, `DockerEngine.load` and the registry's client raise.
    """
    registry = registries.at(digest.repository)
    manifest = None if engine.reads_zstd else registry.manifest(digest, platform)
    if manifest is None or not any(layer.media_type.endswith("zstd") for layer in manifest.layers):
        engine.pull_base(digest, platform, registries.login(digest.repository.registry).login, progress)
        return str(digest)
    if engine.image_id(key) == manifest.config.digest:
        return manifest.config.digest
    subject, started = f"base {digest.repository.path}", time.monotonic()
    progress(Step(subject, f"loading {digest}, whose zstd layers this engine does not read"))
    archive = load_archive(
        f"imgtool/stage:{key}",
        _make_image(manifest, digest, registry),
        lambda layer: registry.blob(digest.repository, layer),
    )
    image_id = engine.load(archive, key)
    if image_id != manifest.config.digest:
        raise EngineUnavailableError(f"loading {digest}: the engine made {image_id} of {manifest.config.digest}")
    progress(Done(subject, Outcome.FETCHED, digest.digest, time.monotonic() - started))
    return image_id


def _make_image(manifest: Manifest, digest: Digest, registry: Registry) -> DirectImage:
    config = registry.read(digest.repository, manifest.config)
    return DirectImage(
        base_layers=manifest.layers,
        layers=(),
        config=config,
        config_descriptor=manifest.config,
        manifest=manifest.body,
        manifest_type=manifest.media_type,
        digest=manifest.digest,
        diff_ids=tuple(read_config(config)["rootfs"]["diff_ids"]),
    )
