"""Runs the stages of rendered Dockerfiles on an engine: each content key once, independent ones side by side.

A stage is built on its own, from its parent's image, under its content key; so the roles of a spec share
what they have in common, and a stage that the engine still has is not built again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING

from training_imgtool.core.errors import EngineUnavailableError
from training_imgtool.core.progress import Done, Outcome, Progress
from training_imgtool.core.reference import Digest, Login, parse_reference
from training_imgtool.core.threads import SingleFlight, run_all
from training_imgtool.dockerfile.mounts import context_sources
from training_imgtool.dockerfile.parse import Dockerfile, Stage
from training_imgtool.engines import StageBuild

if TYPE_CHECKING:
    from training_imgtool.engines.docker.engine import DockerEngine

_SIDE_BY_SIDE = 4
_LINK = re.compile(r"\s--link(=\S*)?(?=\s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One image to make: a parsed Dockerfile, the stage that is wanted, and every stage's key."""

    subject: str
    dockerfile: Dockerfile
    target: str
    keys: Mapping[str, str]
    shared: Mapping[str, str]  # what progress calls the stages that other roles share, by stage name


class StageRunner:
    """Builds stages on one engine. Thread-safe; a key is built once, however many roles need it.

    `write_files` writes a tar of what COPY and ADD name; it fetches first what is not on this machine.
    """

    def __init__(
        self,
        engine: DockerEngine,
        write_files: Callable[[tuple[str, ...], IO[bytes]], None],
        *,
        platform: str,
        login_for: Callable[[str], Login | None],
        progress: Progress,
        no_cache: bool,
    ) -> None:
        self._engine = engine
        self._write_files = write_files
        self._platform = platform
        self._login_for = login_for
        self._progress = progress
        self._no_cache = no_cache
        self._images: SingleFlight[str] = SingleFlight()
        self._bases: SingleFlight[None] = SingleFlight()

    def run(self, recipes: tuple[Recipe, ...]) -> dict[str, str]:
        """Builds every recipe's target, side by side; returns image IDs by subject.

        Raises the first failure after the others have ended: BuildFailedError, EngineUnavailableError and
        what pulling a base raises.
        """
        return run_all({r.subject: partial(self._image, r, r.target) for r in recipes}, most=_SIDE_BY_SIDE)

    def _image(self, recipe: Recipe, name: str) -> str:
        """Returns the image of one stage: built now, by another thread, or before."""
        stage, key = recipe.dockerfile.stage(name), recipe.keys[name]
        earlier = recipe.dockerfile.earlier(stage.base, stage)
        if earlier is not None and not stage.instructions:
            return self._image(recipe, earlier.label)  # of the same key
        return self._images.do(key, lambda: self._make(recipe, stage, key))

    def _make(self, recipe: Recipe, stage: Stage, key: str) -> str:
        subject = recipe.shared.get(stage.label, recipe.subject)
        if not self._no_cache:
            image = self._engine.image_id(key)
            if image is not None:
                self._progress(Done(subject, Outcome.FOUND, f"stage {stage.label} in the engine"))
                return image
        parent = self._parent(recipe, stage)
        for digest in _copied_images(stage, recipe.dockerfile):
            self._pull(digest)
        named = _copied_stages(stage, recipe.dockerfile)
        copied = {name: self._image(recipe, label) for name, label in named.items()}
        started = time.monotonic()
        image = self._engine.build(
            StageBuild(
                key=key,
                subject=subject,
                images=(parent, *copied.values()),
                dockerfile=stage_text(recipe.dockerfile, stage, parent, copied),
                context=lambda stream: self._write_files(context_sources((stage,)), stream),
                line=stage.line,
                lines=(
                    *(instruction.line for instruction in recipe.dockerfile.args),
                    stage.line,
                    *(instruction.line for instruction in stage.instructions),
                ),
                platform=self._platform,
                no_cache=self._no_cache,
            ),
            self._progress,
        )
        self._progress(Done(subject, Outcome.BUILT, f"stage {stage.label}", time.monotonic() - started))
        return image

    def _parent(self, recipe: Recipe, stage: Stage) -> str:
        """Returns what FROM names: the image of a stage, or a base by digest that the engine has pulled."""
        earlier = recipe.dockerfile.earlier(stage.base, stage)
        if earlier is not None:
            return self._image(recipe, earlier.label) if earlier.instructions else self._parent(recipe, earlier)
        if stage.base == "scratch":
            return "scratch"
        base = parse_reference(stage.base)
        if not isinstance(base, Digest):
            raise EngineUnavailableError(f"FROM {stage.base}: a base without a digest")  # rendering refuses it before
        self._pull(base)
        return str(base)

    def _pull(self, base: Digest) -> None:
        def pull() -> None:
            self._engine.pull_base(base, self._platform, self._login_for(base.repository.registry), self._progress)

        self._bases.do(base, pull)


def _copied_stages(stage: Stage, dockerfile: Dockerfile) -> dict[str, str]:
    """Returns the stages that `COPY --from` names: their labels, by what the text says."""
    names = [instruction.flag("from") for instruction in stage.instructions if instruction.name == "COPY"]
    stages = {name: dockerfile.earlier(name, stage) for name in names if name is not None}
    return {name: other.label for name, other in stages.items() if other is not None}


def _copied_images(stage: Stage, dockerfile: Dockerfile) -> list[Digest]:
    """Returns the images that `COPY --from` names; an engine that pulls one by itself has no login for it."""
    named = [instruction.flag("from") for instruction in stage.instructions if instruction.name == "COPY"]
    images = [parse_reference(name) for name in named if name and dockerfile.earlier(name, stage) is None]
    return [image for image in dict.fromkeys(images) if isinstance(image, Digest)]


def stage_text(dockerfile: Dockerfile, stage: Stage, parent: str, images: Mapping[str, str]) -> str:
    """Writes the stage on its own: global ARGs, FROM its parent, each `COPY --from` of a stage from its image."""
    lines = [*(_line(argument.raw) for argument in dockerfile.args), f"FROM {parent}\n"]
    for instruction in stage.instructions:
        source = instruction.flag("from")
        text = instruction.raw
        if source is not None and source in images:
            text = text.replace(f"--from={source}", f"--from={images[source]}", 1)
        if any(flag == "link" for flag, _ in instruction.flags):  # of no effect here, and Docker 20.10 refuses it
            text = _LINK.sub("", text, count=1)
        lines.append(_line(text))
    return "".join(lines)


def _line(raw: str) -> str:
    return raw if raw.endswith("\n") else f"{raw}\n"
