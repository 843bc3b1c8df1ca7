"""The engine of one run, which runs the stages that imgtool cannot make itself: a builder of buildx."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from training_imgtool.core.atomic_files import hold_lock
from training_imgtool.core.errors import EngineUnavailableError, NeedsEngineError
from training_imgtool.core.progress import Done, Note, Outcome
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.threads import SingleFlight
from training_imgtool.pipeline.find import find_image
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.pipeline.request import BuildRun

if TYPE_CHECKING:
    from training_imgtool.pipeline.engine.buildx_engine import BuildxEngine, StageImages
    from training_imgtool.registry.connect import Registries


class Engines:
    """Has buildx run stages; it is looked for when a stage first needs it. Thread-safe."""

    def __init__(self, run: BuildRun, registries: Registries) -> None:
        self._run = run
        self._registries = registries
        self._opening: SingleFlight[BuildxEngine] = SingleFlight()
        self._buildx: BuildxEngine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._buildx is not None:
            self._buildx.close()

    def require(self, label: str, reason: str) -> None:
        """Raises EngineUnavailableError with the reason when buildx is not installed, or the options forbid it."""
        if self._run.options.engine == "direct":
            raise NeedsEngineError(f"the stage {label} needs an engine: {reason}", hint="leave out --engine direct")
        try:
            self._open()
        except EngineUnavailableError as error:
            message = f"the stage {label} needs an engine ({reason}): {error.message}"
            raise EngineUnavailableError(message, hint=error.hint, details=error.details) from error

    def is_there(self) -> bool:
        """Returns whether the options allow an engine and buildx is installed."""
        with suppress(EngineUnavailableError):
            return self._run.options.engine != "direct" and self._open() is not None
        return False

    def push(self, image: RoleImage, label: str, tag: Tag, images: StageImages, *, anew: bool = False) -> Digest:
        """Runs a stage and pushes it under a tag; returns the digest that the registry answers for.

        What a RUN makes differs from run to run, and one key has one digest: so runs that share a cache take turns, and
        take what another one pushed meanwhile.

        Args:
            image: the image that the stage belongs to.
            label: the stage's.
            tag: where it goes.
            images: makes sure of the stages that the stage starts from.
            anew: pushes it in any case, as the registry has lost a part of what it has under the tag.

        Raises what `BuildxEngine.push` raises.
        """
        subject, cache = image.subject_of(label), self._run.settings.cache
        with suppress(OSError):
            (cache / "stages").mkdir(parents=True, exist_ok=True)
        with hold_lock(cache / "stages" / tag.name, lambda note: self._run.progress(Note(f"{subject}: {note}"))):
            if not (anew or self._run.options.no_cache) and (found := find_image(self._registries, tag)) is not None:
                self._run.progress(Done(subject, Outcome.FOUND, f"{tag}: another run has pushed it"))
                return found
            return self._open().push(image, label, tag, images)

    def push_whole(self, image: RoleImage, tag: Tag) -> Digest:
        """Has buildx make a whole image and push it; raises as `push`."""
        return self._open().push_whole(image, tag)

    def compile(self, image: RoleImage, label: str, tag: Tag, below: Digest) -> Digest:
        """Has the builder make bytecode for /opt/venv on an image, and pushes the result; raises as `push`."""
        return self._open().compile(image, label, tag, below)

    def _open(self) -> BuildxEngine:
        def open_buildx() -> BuildxEngine:
            from training_imgtool.pipeline.engine.buildx_engine import BuildxEngine

            name = self._run.options.builder or self._run.settings.builder
            self._buildx = BuildxEngine(self._run, self._registries, name)
            return self._buildx

        return self._opening.do("buildx", open_buildx)
