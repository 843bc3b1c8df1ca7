"""Many specs in one process: `imgtool push images/*`, `--set tensorflow=2.15.1,2.16.2`, or both.

Specs are built side by side. Stages that two of them share are made once: a spec whose shared stages nobody has made in
this process holds the others that need them back until they are in the registry.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from training_imgtool.core.errors import ImgtoolError, UsageError
from training_imgtool.core.progress import Event, Note, Progress
from training_imgtool.core.settings import Settings
from training_imgtool.pipeline.engine.secrets import with_own_secrets
from training_imgtool.pipeline.inputs import Inputs, prepare
from training_imgtool.pipeline.platforms import build_platforms
from training_imgtool.pipeline.renewal import build_renewed
from training_imgtool.pipeline.request import BuildOptions, BuildResult, BuildRun, SpecChoice, name_for_role
from training_imgtool.pipeline.shared_reads import SharedReads, open_spec
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.spec.load import SpecFile

_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecResult:
    """What became of one spec: its images, or the failure."""

    choice: SpecChoice
    images: tuple[BuildResult, ...] = ()
    error: ImgtoolError | None = None


def build_many(
    choices: tuple[SpecChoice, ...],
    options: BuildOptions,
    settings: Settings,
    progress: Progress,
    *,
    registry: str | None,
    locked: bool,
    inspect: Callable[[SpecFile], None] | None,
    after: Callable[[Inputs, tuple[BuildResult, ...], Progress], None] | None = None,
) -> tuple[SpecResult, ...]:
    """Builds every spec, several side by side, over the same connections; a spec that fails stops no other.

    `inspect` checks a spec before its build; `after` gets its images, in the thread that made them. Raises UsageError,
    before anything is built, if `--tag` would name images of two specs alike.
    """
    _require_own_tags(choices, options, registry or settings.registry)
    gate, unused = _StageGate(), {secret.id for secret in settings.secrets}
    with connect(settings, progress) as registries:

        def attempt(choice: SpecChoice, shared: SharedReads) -> SpecResult:
            view = partial(_tell, progress, choice.name)
            try:
                spec_file = shared.open_spec(choice.path, choice.values)
                if inspect:
                    inspect(spec_file)

                def make(inputs: Inputs) -> tuple[BuildResult, ...]:
                    own = with_own_secrets(inputs, settings)
                    unused.difference_update(secret.id for secret in own.secrets)
                    run = BuildRun(inputs=inputs, options=options, settings=own, progress=view)
                    images = _build_gated(run, gate, registries)
                    if after:
                        after(inputs, images, view)
                    return images

                prepare_spec = partial(
                    prepare,
                    spec_file,
                    settings,
                    view,
                    registry=registry,
                    locked=locked,
                    registries=registries,
                    roles=options.roles,
                    push=options.push,
                    shared=shared,
                )
                images = build_renewed(lambda renewal: prepare_spec(renewal=renewal), make, view, locked=locked)
                return SpecResult(choice=choice, images=images)
            except ImgtoolError as error:
                return SpecResult(choice=choice, error=error)

        pool = ThreadPoolExecutor(min(_AT_ONCE, len(choices)), thread_name_prefix="spec")
        try:
            results = tuple(pool.map(attempt, choices, _share_reads(choices, settings)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()
    for name in sorted(unused):
        progress(Note(f"secret {name}: no spec uses it"))
    return results


def _require_own_tags(choices: tuple[SpecChoice, ...], options: BuildOptions, registry: str | None) -> None:
    """Raises UsageError if two specs would push an image under the same name: chance would decide which one has it."""
    owners: dict[str, SpecChoice] = {}
    for choice in choices if options.tags else ():
        try:
            spec = open_spec(choice.path, choice.values).spec
        except ImgtoolError:
            continue  # its own build reports it
        roles = options.roles or tuple(spec.roles)
        for tag, role in itertools.product(options.tags, roles):
            name = f"{registry or spec.registry}/{spec.name}:{name_for_role(tag, role, of=len(roles))}"
            if (owner := owners.setdefault(name, choice)) is not choice:
                raise UsageError(
                    f"--tag {tag}: {owner.name} and {choice.name} would both push {name}",
                    hint="push them one by one with a tag each, or give each spec a name of its own",
                )


def _share_reads(choices: tuple[SpecChoice, ...], settings: Settings) -> Iterator[SharedReads]:
    """Yields one SharedReads per spec, repeated for each of its variants."""
    for _, variants in itertools.groupby(choices, key=lambda choice: choice.path):
        shared = SharedReads(settings.cache)
        yield from (shared for _ in variants)


def _build_gated(run: BuildRun, gate: _StageGate, registries: Registries) -> tuple[BuildResult, ...]:
    shared = {
        key for image in run.wanted for stage, key in image.keys.items() if stage != image.dockerfile.stages[-1].label
    }
    with gate.hold(shared):
        return build_platforms(run, registries)


class _StageGate:
    """Lets one spec at a time through with a stage that no spec has made yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gates: dict[str, threading.Lock] = {}
        self._made: set[str] = set()

    @contextmanager
    def hold(self, keys: set[str]) -> Iterator[None]:
        """Waits for the stages under `keys` that others make; holds those that nobody makes until the block ends."""
        with ExitStack() as held:
            for key in sorted(keys):  # in one order everywhere, so that no two wait for each other
                with self._lock:
                    gate = None if key in self._made else self._gates.setdefault(key, threading.Lock())
                if gate is not None:
                    held.enter_context(gate)
            yield
            self._made |= keys


def _tell(progress: Progress, name: str, event: Event) -> None:
    """Passes an event on with the spec's name in front of its subject."""
    if isinstance(event, Note):
        progress(replace(event, text=f"{name}: {event.text}"))
    else:
        progress(replace(event, subject=f"{name} {event.subject}"))
