"""What a push changed, by the notes of this machine: the registry is not asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from training_imgtool.changes import pushed
from training_imgtool.changes.compare import Difference, compare
from training_imgtool.changes.inputs import Shared
from training_imgtool.changes.planned import read_planned
from training_imgtool.core.errors import ImageMissingError, ImgtoolError
from training_imgtool.core.progress import Outcome
from training_imgtool.core.settings import Settings
from training_imgtool.pipeline.attach import list_untracked
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.platforms import pair_parts
from training_imgtool.pipeline.request import BuildResult

_MOST = 3  # differences of a role that are said
_ALIKE = 1.01  # times the smallest image that the largest may have, so that one size tells of both


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a push changed of one role.

    Attributes:
        result: the image.
        platform: its own.
        before: the digest that this machine pushed or found before; None where it has no note of one.
        differences: since then; None where nobody knows.
    """

    result: BuildResult
    platform: str
    before: str | None
    differences: tuple[Difference, ...] | None

    @property
    def text(self) -> str:
        """What changed, in one line."""
        if self.differences is None:
            return "the first image that this machine pushes here" if self.before is None else "other inputs"
        if not self.differences:
            return "the same inputs, made anew"
        return _shorten(self.differences, f"(imgtool show --why {self.before})")


def _shorten(differences: Sequence[Difference], how: str) -> str:
    """Names the first differences, and `how` to see the others."""
    texts = [difference.text for difference in differences]
    return "; ".join(texts[:_MOST]) + (f", and {len(texts) - _MOST} more {how}" if len(texts) > _MOST else "")


def note_push(
    inputs: Inputs, results: Sequence[BuildResult], settings: Settings, variant: str = ""
) -> tuple[Changed, ...]:
    """Remembers what was pushed; returns what changed, without the images that a push found as they were.

    Of an index those of its platforms are remembered; of one that was found nobody knows them without asking.
    `variant` tells images of one repository and role apart that several `--set` made.
    """
    changed, shared = [], Shared()
    for own, result in pair_parts(inputs, results):
        if result.digest is None:
            continue
        where = (settings.cache, result.digest.repository, str(result.role), own.plan.platform, variant)
        last = pushed.find_pushed(*where)
        if last is not None and last.digest == result.digest.digest:
            continue
        (image,) = own.selected((result.role,))
        was = pushed.find_inputs(settings.cache, last.key, shared) if last else None
        shared.texts.update({file.content: file.text for file in was.files.values() if file.text} if was else {})
        try:
            now = read_planned(own, image, shared)
        except ImgtoolError:  # such as a file that changes just now: the push itself is done
            continue
        pushed.note_inputs(settings.cache, now, shared)
        note = pushed.Pushed(
            digest=result.digest.digest, key=result.key, blobs=result.blobs, before=last.blobs if last else {}
        )
        pushed.note_pushed(*where, pushed=note)
        if result.outcome is not Outcome.FOUND:
            changed.append(
                Changed(
                    result=result,
                    platform=own.plan.platform,
                    before=last.digest if last else None,
                    differences=compare(was, now) if was else None,
                )
            )
    return tuple(changed)


def describe_push(changed: Sequence[Changed], format_size: Callable[[int], str]) -> tuple[str, ...]:
    """Describes a push in a few lines: what changed, roles of the same changes together, and the bytes."""
    groups: dict[str, list[Changed]] = {}
    for one in changed:
        groups.setdefault(one.text, []).append(one)
    lines = []
    for text, ones in groups.items():
        sizes = sorted({sum(one.result.blobs.values()) for one in ones if one.result.blobs})
        alike = sizes[-1:] if sizes and sizes[-1] < sizes[0] * _ALIKE else sizes[:1] + sizes[-1:]
        size = f", image of {' to '.join(map(format_size, alike))}" if alike else ""
        lines.append(f"{', '.join(_name_images(ones, changed))}: {text}{size}")
    blobs = {digest: size for one in changed for digest, size in one.result.blobs.items()}
    sent = frozenset[str]().union(*(one.result.sent for one in changed))
    if blobs:
        amount, total = sum(blobs[digest] for digest in sent), sum(blobs.values())
        lines.append(f"sent {format_size(amount)}, reused {format_size(total - amount)} that the registry had")
    return tuple(lines)


def _name_images(ones: Sequence[Changed], changed: Sequence[Changed]) -> Iterator[str]:
    """Names the roles; with its platform an image whose role changed otherwise on another."""
    for role in dict.fromkeys(one.result.role for one in ones):
        mine = [one.platform for one in ones if one.result.role is role]
        if len(mine) == sum(one.result.role is role for one in changed):
            yield str(role)
        else:
            yield from (f"{role} {platform}" for platform in mine)


def describe_untracked(inputs: Inputs, settings: Settings) -> str:
    """Names the files in the images that Git does not track, such as what a tool left beside the code; or nothing."""
    paths = list_untracked(inputs, settings)
    if not paths:
        return ""
    more = f" and {len(paths) - _MOST} more" if len(paths) > _MOST else ""
    return (
        f"the images have what Git does not track: {', '.join(paths[:_MOST])}{more}"
        " (list in .dockerignore what the program does not read)"
    )


@contextmanager
def telling_what_changed(inputs: Inputs, settings: Settings) -> Iterator[None]:
    """Adds to an ImageMissingError what changed since this machine pushed the images, by its notes."""
    try:
        yield
    except ImageMissingError as error:
        pairs = ((own, image) for own in inputs.by_platform for image in own.images)
        lines = tuple(dict.fromkeys(filter(None, (_since_push(own, image, settings) for own, image in pairs))))
        hint = error.hint
        if lines:
            hint = f"{hint}, or list in .dockerignore what the program does not read"
        raise ImageMissingError(error.message, hint=hint, details=(*error.details, *lines)) from error


def _since_push(inputs: Inputs, image: RoleImage, settings: Settings) -> str:
    if inputs.plan.repository is None:
        return ""
    last = pushed.find_pushed(settings.cache, inputs.plan.repository, str(image.role), inputs.plan.platform)
    was = pushed.find_inputs(settings.cache, last.key) if last else None
    try:
        differences = compare(was, read_planned(inputs, image)) if was else ()
    except ImgtoolError:  # such as a file that changes just now
        return ""
    return f"since the last push: {_shorten(differences, '(imgtool show --why)')}" if differences else ""
