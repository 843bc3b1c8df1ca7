"""Sinks receive the images of a run: a registry, an OCI layout on disk, or the image store of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.errors import EngineUnavailableError, NeedsEngineError
from training_imgtool.base.progress import Done, Note, Outcome, Step
from training_imgtool.make.attach import Attestations
from training_imgtool.make.direct_builder import DirectBuilder
from training_imgtool.make.engines.engine import Engine
from training_imgtool.make.find import add_tag, find_image, name_results
from training_imgtool.make.parents import BaseParents, Parents, StageParents
from training_imgtool.make.request import BuildResult, BuildRun
from training_imgtool.make.run_wheels import keep_built_wheels
from training_imgtool.model.spec import Role
from training_imgtool.oci.image.docker_archive import load_archive
from training_imgtool.oci.image.image import DirectImage, StoredImage
from training_imgtool.oci.image.oci_layout import name_image, write_layout
from training_imgtool.oci.layers.codecs import Compression
from training_imgtool.oci.registry.failures import TagImmutableError
from training_imgtool.oci.registry.manifests import Descriptor, parse_platform
from training_imgtool.oci.repository.publish import Publisher, list_blobs
from training_imgtool.plan.inputs import RoleImage

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.engine import DockerEngine

_PUSH = "push to a registry, where buildx runs that stage once"


class Sink(ABC):
    """Receives the images of one run. Thread-safe.

    Attributes:
        builder: appends stages to parent images.
        parents: finds these images.
        at_once: how many images the sink receives in parallel.
    """

    builder: DirectBuilder
    parents: Parents
    at_once = 8

    def find(self, images: tuple[RoleImage, ...]) -> Mapping[Role, BuildResult]:
        """Returns the images that the sink already has."""
        del images
        return {}

    @abstractmethod
    def put(self, image: RoleImage, made: DirectImage, parent: StoredImage) -> BuildResult:
        """Receives an image that the direct builder appended to `parent`."""

    def put_from_engine(self, image: RoleImage, reason: NeedsEngineError) -> BuildResult:
        """Lets an engine build an image for the sink; raises `reason` if the sink does not support engines."""
        del image
        reason.hint = reason.hint or _PUSH
        raise reason

    def share(self, image: RoleImage, result: BuildResult) -> BuildResult:
        """Gives a role the image that the sink has received for another role."""
        return replace(result, role=image.role, tag=image.tag, seconds=0.0)

    def finish(self, results: Sequence[BuildResult]) -> None:
        """Adds further names to the images, after the sink has received all images."""
        del results

    def close(self, *, failed: bool) -> None:
        """Ends the work in background threads."""
        del failed


@contextmanager
def open_sink(run: BuildRun, engine: Engine, docker: DockerEngine | None = None) -> Iterator[Sink]:
    """Opens the sink that the options name, else the image store of `docker`, else that of the machine's engine.

    Raises EngineUnavailableError if the engine does not answer.
    """
    with ExitStack() as stack:
        sink = _make_sink(run, engine, docker, stack)
        try:
            yield sink
        except BaseException:
            sink.close(failed=True)
            raise
        sink.close(failed=False)


def _make_sink(run: BuildRun, engine: Engine, docker: DockerEngine | None, stack: ExitStack) -> Sink:
    if run.options.push:
        if run.options.create_repository:
            from training_imgtool.oci.registry.artifact_registry import create_repository

            create_repository(run.inputs.repository, run.machine)
        return RegistrySink(run, engine)
    if run.options.layout is not None:
        return LayoutSink(run, run.options.layout)
    if docker is not None:
        return EngineSink(run, docker)
    from training_imgtool.make.engines.docker.connect import connect

    try:
        docker = stack.enter_context(closing(connect(run.machine.settings)))
    except EngineUnavailableError as error:
        error.hint = "; or ".join(filter(None, (error.hint, "build without one: --push, or --output oci:DIR")))
        raise
    return EngineSink(run, docker)


class RegistrySink(Sink):
    """Pushes images to the spec's repository. A push is complete when the registry confirms the image's digest."""

    def __init__(self, run: BuildRun, engine: Engine) -> None:
        self._run = run
        self._registries = run.machine.registries
        self._engine = engine
        machine = run.machine
        self._publisher = Publisher(self._registries, run.inputs.repository, machine.progress, machine.settings.cache)
        self._attestations = Attestations(run, self._publisher)
        self.builder = DirectBuilder(run, None, self._publisher.send)
        self.parents = StageParents(run, self.builder, self._publisher, engine)

    def put(self, image: RoleImage, made: DirectImage, parent: StoredImage) -> BuildResult:
        """Uploads what the repository lacks, then the manifest; raises what `Publisher.publish` raises."""
        tag = image.registry_tag
        try:
            digest = self._publisher.publish(made, tag, image.role, parent.repository)
        except TagImmutableError:  # another run pushed an image of the same key meanwhile
            other = None if self._run.options.no_cache else find_image(self._registries, tag)
            if other is None:
                raise
            return BuildResult.for_image(image, Outcome.FOUND, other)
        self._attestations.add(image, made)
        blobs = {blob.digest: blob.size for blob in list_blobs(made)}
        sent = frozenset(filter(self._publisher.was_missing, blobs))
        return replace(BuildResult.for_image(image, Outcome.APPENDED, digest), blobs=blobs, sent=sent)

    def share(self, image: RoleImage, result: BuildResult) -> BuildResult:
        """Puts the manifest under the tag of this role, too."""
        if result.digest is not None:
            add_tag(self._registries, result.digest, image.registry_tag)
        return super().share(image, result)

    def put_from_engine(self, image: RoleImage, reason: NeedsEngineError) -> BuildResult:
        """Lets an engine build and push the image; raises `reason` if the options forbid engines."""
        if self._run.options.engine == "direct":
            raise reason
        if self._run.options.engine == "auto":
            self._run.machine.progress(Note(f"{image.role}: needs an engine: {reason}"))
        self._engine.require(image.own.name, reason.message, reason.hint)
        digest = self._engine.push_whole(image)
        self._attestations.add_from_engine(image, digest)
        return BuildResult.for_image(image, Outcome.BUILT, digest)

    def finish(self, results: Sequence[BuildResult]) -> None:
        """Moves the tags of `--tag`, and uploads the wheels that imgtool built."""
        name_results(self._run, results)
        if any(result.outcome is not Outcome.FOUND for result in results):
            keep_built_wheels(self._run)

    def close(self, *, failed: bool) -> None:
        """Waits for uploads, or cancels them when the run failed."""
        self.parents.close(failed=failed)
        self._publisher.close(wait=not failed)


class _LocalSink(Sink):
    """A sink on this machine: appends all stages to the base, and receives the layers when the image is complete."""

    def __init__(self, run: BuildRun, compression: Compression | None = None) -> None:
        self._run = run
        self._registries = run.machine.registries
        self.builder = DirectBuilder(run, compression)
        self.parents = BaseParents(run, self.builder)

    def _reader(self, parent: StoredImage) -> Callable[[Descriptor], Iterator[bytes]]:
        """Returns a function that reads and verifies a layer of the parent image."""
        return lambda layer: self._registries.at(parent.repository).blob(parent.repository, layer)


class LayoutSink(_LocalSink):
    """Adds images to an OCI layout in a folder; each image has the role as its name."""

    at_once = 1  # so that the index lists the roles in the spec's order

    def __init__(self, run: BuildRun, folder: Path) -> None:
        super().__init__(run)
        self._folder = folder

    def put(self, image: RoleImage, made: DirectImage, parent: StoredImage) -> BuildResult:
        """Writes the image; raises LocalFileError, and what reading the base raises."""
        platform = parse_platform(self._run.inputs.spec.platform)
        names = {"os": platform.os, "architecture": platform.architecture}
        if platform.variant:
            names["variant"] = platform.variant
        self._run.machine.progress(Step(image.role, f"into {self._folder}"))
        role = str(image.role)
        digest = write_layout(self._folder, role, made, self._reader(parent), names)
        place = f"oci:{self._folder}:{role}@{digest}"
        return replace(BuildResult.for_image(image, Outcome.APPENDED), place=place)

    def share(self, image: RoleImage, result: BuildResult) -> BuildResult:
        """Adds the role's name to the layout."""
        _, digest = str(result.place).rsplit("@", 1)
        name_image(self._folder, digest, str(image.role))
        return replace(super().share(image, result), place=f"oci:{self._folder}:{image.role}@{digest}")


class EngineSink(_LocalSink):
    """Loads images into an engine's image store; names them by key and, if the spec names a registry, by tag."""

    at_once = 4

    def __init__(self, run: BuildRun, engine: DockerEngine) -> None:
        super().__init__(run, Compression.GZIP)  # Docker Engine reads zstd from 23.0 on
        self._engine = engine

    def find(self, images: tuple[RoleImage, ...]) -> Mapping[Role, BuildResult]:
        """Looks each image up by its key."""
        ids = {image.role: self._engine.image_id(image.key) for image in images}
        present = [image for image in images if ids[image.role]]
        for image in present:
            self._run.machine.progress(Done(image.role, Outcome.FOUND, f"{image.key[:12]} in the engine"))
        return {image.role: BuildResult.for_image(image, Outcome.FOUND, image_id=ids[image.role]) for image in present}

    def put(self, image: RoleImage, made: DirectImage, parent: StoredImage) -> BuildResult:
        """Loads the image under its key, without layers that the engine has; raises EngineUnavailableError."""
        name = str(image.tag or f"imgtool/{image.role}:{image.key[:32]}")
        archive = load_archive(name, made, self._reader(parent), self._engine.count_held(made.diff_ids))
        self._run.machine.progress(Step(image.role, "loading"))
        image_id = self._engine.load(archive, image.key)
        return BuildResult.for_image(image, Outcome.APPENDED, image_id=image_id)

    def finish(self, results: Sequence[BuildResult]) -> None:
        """Gives each image its tag if the spec names a registry."""
        for result in results:
            if result.tag and result.image_id:
                self._engine.tag(result.image_id, result.tag)
