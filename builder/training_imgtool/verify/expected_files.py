"""The files that a Dockerfile's COPY instructions put into an image, with the hashes that the context has."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from training_imgtool.context import gomatch
from training_imgtool.context.context import Context
from training_imgtool.context.entries import Entry, Kind
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.evaluate import Expanded, Scope, walk
from training_imgtool.dockerfile.parse import Dockerfile, Stage

_HARMLESS_FLAGS = frozenset({"chmod", "chown", "link"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFiles:
    """What COPY puts where; paths are relative to the root.

    Attributes:
        files: by path, the SHA-256 in hexadecimal, or `->TARGET` for a link.
        folders: the folders that COPY fills and the one the program starts in: other files do not belong there.
        unclear: paths whose content this module does not predict, such as those that come from another stage.
        runs: whether a RUN instruction may have added files beside these.
        any_run: whether the image has a RUN instruction at all, which may change files of the base.
    """

    files: Mapping[str, str]
    folders: tuple[str, ...]
    unclear: tuple[str, ...]
    runs: bool
    any_run: bool


@dataclass(slots=True)
class _Image:
    """What the instructions so far have made."""

    env: Mapping[str, str]
    working: str = "/"
    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=dict)
    made: set[str] = field(default_factory=lambda: {"/"})
    unclear: list[str] = field(default_factory=list)
    runs: bool = False
    any_run: bool = False


def find_copied_files(dockerfile: Dockerfile, context: Context, base_env: Mapping[str, str]) -> CopiedFiles:
    """Returns the files of the last stage, the stages that it starts from included.

    Args:
        dockerfile: the role's Dockerfile.
        context: the build context.
        base_env: the environment of the base image.
    """
    image = _Image(base_env)
    for stage in (*dockerfile.below(dockerfile.stages[-1]), dockerfile.stages[-1]):
        steps, scope = walk(dockerfile, stage, Scope(env=image.env, args={}))
        for step in steps:
            _apply(image, step, context, stage)
        image.env = scope.env
    if image.working != "/":
        image.folders[image.working.strip("/")] = None
    return CopiedFiles(
        files=image.files,
        folders=tuple(image.folders),
        unclear=tuple(image.unclear),
        runs=image.runs,
        any_run=image.any_run,
    )


def _apply(image: _Image, step: Expanded, context: Context, stage: Stage) -> None:
    if step.name == "WORKDIR":
        image.working = posixpath.normpath(posixpath.join(image.working, step.words[0]))
        image.made.add(image.working)
    elif step.name == "RUN":  # the stage `system` installs Debian packages before anything is copied
        image.runs = image.runs or bool(image.files) or stage.label != "system"
        image.any_run = True
    elif step.name in {"COPY", "ADD"}:
        target = posixpath.normpath(posixpath.join("/", image.working, step.words[-1]))
        if not _copy(image, step, context, target):
            image.unclear.append(target.strip("/"))


def _copy(image: _Image, step: Expanded, context: Context, target: str) -> bool:
    """Adds the files of one COPY; False when its result depends on more than the context."""
    if set(step.flags) - _HARMLESS_FLAGS or step.instruction.heredocs or step.name == "ADD":
        return False
    try:
        entries = [entry for source in step.words[:-1] for entry in _find_sources(context, source)]
    except KeyError:  # the path leads through a link
        return False
    into = step.words[-1].endswith(("/", "/.")) or step.words[-1] == "." or target in image.made or len(entries) > 1
    for entry in entries:
        if entry.kind is not Kind.DIRECTORY:
            if not into or entry.kind is Kind.SYMLINK:  # COPY follows a link that it names itself
                return False
            _add(image, entry, posixpath.join(target, posixpath.basename(entry.path)))
            continue
        image.folders[target.strip("/")] = None
        image.made.add(target)
        prefix = f"{entry.path}/" if entry.path else ""
        own = f"{install_step.context_root()}/"
        for inner in context.entries:
            if inner.path.startswith(prefix) and inner.kind is not Kind.DIRECTORY and not inner.path.startswith(own):
                _add(image, inner, posixpath.join(target, inner.path.removeprefix(prefix)))
    return True


def _find_sources(context: Context, source: str) -> list[Entry]:
    path = posixpath.normpath(source.lstrip("/") or ".")
    if path == ".":
        return [Entry(path="", kind=Kind.DIRECTORY, mode=0o755)]
    if gomatch.has_wildcards(path):
        pattern = gomatch.compile_pattern(path)
        return [entry for entry in context.entries if pattern.match(entry.path)]
    return [context.entry(path)]


def _add(image: _Image, entry: Entry, path: str) -> None:
    image.files[path.strip("/")] = f"->{entry.target}" if entry.kind is Kind.SYMLINK else entry.sha256 or ""
