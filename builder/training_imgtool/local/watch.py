"""`imgtool run --watch`: restarts the cluster after each save, and makes only changed parts again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Self

from training_imgtool.base.errors import ImgtoolError, InputError
from training_imgtool.base.progress import Progress
from training_imgtool.local.checkpoints import latest
from training_imgtool.local.file_watch import FileWatch
from training_imgtool.local.monitor import Report
from training_imgtool.local.owner import remove_all
from training_imgtool.local.ready import Ready
from training_imgtool.local.summary import Summary
from training_imgtool.local.supervisor import Supervisor
from training_imgtool.local.warm import WarmContainers
from training_imgtool.make.engines.docker.containers import Containers
from training_imgtool.make.engines.docker.engine import DockerEngine
from training_imgtool.make.role_files import Files, list_role_files
from training_imgtool.model.spec import Role
from training_imgtool.plan.inputs import Inputs, RoleImage

_LOOK = 0.02  # seconds between checks for changes
_MOST_HELD = 256 << 20  # bytes of code


class How(StrEnum):
    """The work that a change requires."""

    NOTHING = "nothing"
    CODE = "code"
    IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Changed:
    """A change of files: the names of the files, and the work that the change requires."""

    files: tuple[str, ...]
    how: How


@dataclass(frozen=True, slots=True)
class Started:
    """All replicas run, `seconds` after the change; `cold` names the replicas that imported their modules again."""

    seconds: float
    how: How
    cold: tuple[str, ...]
    keys: Mapping[Role, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """The cluster has ended by itself."""

    summary: Summary


@dataclass(frozen=True, slots=True)
class Failed:
    """imgtool cannot run a changed version; the cluster of the previous version continues to run."""

    error: ImgtoolError


Sign = Changed | Started | Ended | Failed


class _InterruptedError(Exception):
    """A newer version is ready to run."""


@dataclass(frozen=True, slots=True)
class Version:
    """The state of all input files at one time.

    Attributes:
        inputs: what the images are made from.
        files: maps each role to the files that the last stage of its image adds; None if only an engine knows them.
        at: the time when the change to this version began, by the monotonic clock.
    """

    inputs: Inputs
    files: Mapping[Role, Files | None]
    at: float

    @classmethod
    def of(cls, inputs: Inputs, at: float) -> Self:
        """Reads the files of `inputs`; raises InputError if a file has changed after imgtool read `inputs`."""
        files = {image.role: list_role_files(image) for image in inputs.images}
        return cls(inputs, {role: _hold(found) for role, found in files.items()}, at)

    @property
    def keys(self) -> dict[Role, str]:
        """The images' keys."""
        return {image.role: image.key for image in self.inputs.images}

    def is_like(self, other: Version) -> bool:
        """Tells whether `other` has the same spec and the same images."""
        return self.inputs.spec_file.spec == other.inputs.spec_file.spec and self.keys == other.keys


def _hold(files: Files | None) -> Files | None:
    """Reads the files into memory unless they are very large, because they may change before imgtool copies them."""
    if files is None or sum(file.item.entry.size for file in files.values()) > _MOST_HELD:
        return files
    return {path: file.held() for path, file in files.items()}


@dataclass(frozen=True, slots=True)
class _Step:
    """The next version to run, in containers of the images of `built`; `ready` is set if these images are new."""

    version: Version
    how: How
    built: Version
    ready: Ready | None = None


class _Round(Supervisor):
    """Supervises the programs of one version in warm containers, until they end or a newer version is ready."""

    def __init__(
        self,
        ready: Ready,
        containers: WarmContainers,
        progress: Progress,
        *,
        interrupted: threading.Event,
        started: Callable[[], None],
    ) -> None:
        super().__init__(ready, containers, progress)
        self._warm, self._interrupted, self._started = containers, interrupted, started

    def _start_all(self) -> None:
        super()._start_all()
        self._started()

    def _next_report(self) -> Report | None:
        if self._interrupted.is_set():
            raise _InterruptedError
        return self._watcher.next(_LOOK)

    def _remove_all(self) -> None:
        self._warm.end_round()


class Watch:
    """A cluster that restarts after each save. The thread that calls `run` starts and ends replicas.

    Args:
        inputs: the first inputs to run.
        ready: the cluster of these inputs.
        engine: the engine that has their images.
        read: reads the present inputs.
        prepare: makes images of inputs, and a cluster that is ready.
        open_output: opens the display of the replicas' output.
        show: receives events, from any thread.
        mtime: the time of files in images, or None for imgtool's own.
    """

    def __init__(
        self,
        inputs: Inputs,
        ready: Ready,
        engine: DockerEngine,
        *,
        read: Callable[[], Inputs],
        prepare: Callable[[Inputs], Ready],
        open_output: Callable[[Ready], AbstractContextManager[Progress]],
        show: Callable[[Sign], None],
        mtime: int | None,
    ) -> None:
        self._engine, self._read, self._prepare = engine, read, prepare
        self._open_output, self._show, self._mtime = open_output, show, mtime
        first = Version.of(inputs, time.monotonic())
        self._ready, self._applied = ready, first
        self._newest = _Step(first, How.NOTHING, first)
        self._next: _Step | None = self._newest
        self._warm = self._open_warm(first)
        self._files = FileWatch(inputs, ready.job_dir, self._notice, self._fail)
        self._lock, self._interrupted = threading.Lock(), threading.Event()

    def run(self) -> None:
        """Runs the cluster until a signal arrives; always removes all containers and the network."""
        self._files.start()
        try:
            while True:
                step = self._take()
                if step is not None:
                    self._run_round(step)
                self._interrupted.wait(_LOOK)
        finally:
            self._files.stop()
            self._close()

    def _take(self) -> _Step | None:
        with self._lock:
            step, self._next = self._next, None
            self._interrupted.clear()
            return step

    def _post(self, step: _Step) -> None:
        with self._lock:
            if self._next and self._next.ready and not step.ready:  # new containers that are not open yet
                step = replace(step, how=How.IMAGES, ready=self._next.ready)
            self._newest = self._next = step
            self._interrupted.set()

    def _notice(self, at: float) -> Inputs:
        """Reads the inputs again. If the inputs differ, makes the images and schedules the restart.

        The present cluster continues to run meanwhile. Raises the errors of reading inputs and of making images.
        """
        version, newest = Version.of(self._read(), at), self._newest
        if version.is_like(newest.version):
            return version.inputs
        how = How.IMAGES if self._warm.has_plain else classify(newest.built, newest.version, version)
        self._show(Changed(list_changed(newest.version.inputs, version.inputs), how))
        if how is How.IMAGES:
            self._post(_Step(version, how, built=version, ready=self._prepare(version.inputs)))
        else:
            self._post(_Step(version, how, newest.built))
        return version.inputs

    def _fail(self, error: ImgtoolError) -> None:
        """Shows an error; the present cluster continues to run."""
        self._show(Failed(error))

    def _run_round(self, step: _Step) -> None:
        if step.ready:
            self._close()
            self._ready = step.ready
            self._warm = self._open_warm(step.built)
        self._warm.wanted = self._files_of(step.version)
        self._applied = step.version
        ready = replace(self._ready, checkpoint=latest(self._ready.job_dir))
        try:
            with self._open_output(ready) as progress:
                self._warm.progress = progress
                started = partial(self._show_start, step)
                one = _Round(ready, self._warm, progress, interrupted=self._interrupted, started=started)
                with suppress(_InterruptedError):
                    self._show(Ended(one.run()))
        except InputError as error:  # a large file that changed before imgtool copied it into a container
            self._fail(error)

    def _open_warm(self, built: Version) -> WarmContainers:
        warm = WarmContainers(self._engine.api, self._mtime)
        warm.built = self._files_of(built)
        warm.servers = frozenset(one.name for one in self._ready.cluster.servers)
        return warm

    def _files_of(self, version: Version) -> dict[str, Files]:
        """Maps the name of each running image to the files that the image would contain in `version`."""
        own = {role: version.files.get(role, version.files.get(Role.WORKER)) for role in self._ready.images}
        return {
            image.reference: files for role, image in self._ready.images.items() if (files := own[role]) is not None
        }

    def _show_start(self, step: _Step) -> None:
        seconds = time.monotonic() - step.version.at
        self._show(Started(seconds, step.how, self._warm.list_cold(), step.version.keys))

    def _close(self) -> None:
        """Removes the containers and the network."""
        self._warm.close()
        with suppress(ImgtoolError):  # the next run removes them
            remove_all(Containers(self._engine.api), self._ready.run)


def classify(built: Version, applied: Version, new: Version) -> How:
    """Decides which work a change requires.

    Args:
        built: the inputs of the containers' images.
        applied: the version that the containers have now, with copied files.
        new: the present files.
    """
    if new.is_like(applied):
        return How.NOTHING
    before = {image.role: _describe(image) for image in built.inputs.images}
    now = {image.role: _describe(image) for image in new.inputs.images}
    if new.inputs.spec_file.spec != built.inputs.spec_file.spec or before != now:
        return How.IMAGES
    for role, wanted in new.files.items():
        for there in (built.files[role], applied.files.get(role)):
            if wanted is None or there is None or there.keys() - wanted.keys():  # imgtool deletes no files there
                return How.IMAGES
    return How.CODE


def _describe(image: RoleImage) -> object:
    """Returns an image's recipe, without the files and labels."""
    document = image.recipe.make_document()
    return {name: value for name, value in document.items() if name not in {"files", "code", "context", "labels"}}


def list_changed(before: Inputs, after: Inputs) -> tuple[str, ...]:
    """Lists what differs: code files by their paths below the code's folder, the spec by its name, and the lock."""
    old = {entry.path: entry.sha256 or entry.target for entry in before.context.on_disk()}
    new = {entry.path: entry.sha256 or entry.target for entry in after.context.on_disk()}
    paths = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    if before.spec_file.text_sha256 != after.spec_file.text_sha256:
        paths.insert(0, after.spec_file.path.name)
    if before.lock != after.lock:
        paths.append("the lock")
    return tuple(paths)
