"""`imgtool show --why`: names the inputs that differ between images of a registry and what the spec says now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from training_imgtool.changes.compare import Difference, compare
from training_imgtool.changes.planned import read_planned
from training_imgtool.changes.pushed import find_pushed
from training_imgtool.changes.stored import StoredInputs, read_stored
from training_imgtool.core.errors import InputError, LocalFileError, RegistryRefusedError, UsageError
from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Digest, Tag, parse_reference
from training_imgtool.core.sanitize import join_lines
from training_imgtool.core.settings import Settings
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.request import name_for_role
from training_imgtool.registry.connect import Registries, connect

_DIGEST = "sha256:[0-9a-f]{64}"
_LARGEST_FILE = 4 << 20
_WRITTEN = b"# Written by imgtool "
_IMAGES = "give a tag, a digest or a job file"
_MOST_LINES = 20  # of one role, as text


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """One role's image beside what the spec says now.

    Attributes:
        image: what the spec says.
        stored: the image that it is compared with; None where no image of the role was named.
        source: who names that image, for people.
        differences: the inputs that differ; none where the keys are the same.
        notes: what differs without being an input, or cannot be compared.
    """

    image: RoleImage
    stored: StoredInputs | None
    source: str = ""
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Returns the row as JSON has it."""
        return {
            "role": str(self.image.role),
            "key": self.image.key,
            "image": str(self.stored.digest) if self.stored else None,
            "image_key": self.stored.inputs.key if self.stored else None,
            "differences": [asdict(difference) for difference in self.differences],
            "notes": list(self.notes),
        }

    def as_text(self) -> str:
        """Returns the row for people; what stands in an image is foreign text."""
        if self.stored is None:
            return f"{self.image.role}: {self.source}\n"
        lines = [f"{self.image.role}: {self.stored.digest}{f', {self.source}' if self.source else ''}"]
        lines += [f"  {join_lines(difference.text)}" for difference in self.differences[:_MOST_LINES]]
        if more := len(self.differences) - _MOST_LINES:
            lines += [f"  and {more} more (--json has all)"] if more > 0 else []
        if not self.differences:
            lines.append("  no input differs: the spec, the lock and the code come to this image's key")
        lines += [f"  {note}" for note in self.notes]
        return "".join(f"{line}\n" for line in lines)


def explain(inputs: Inputs, image: str, settings: Settings, progress: Progress) -> tuple[Why, ...]:
    """Compares each role with an image.

    Args:
        inputs: the spec, for one platform.
        image: a tag, a digest or a job file; empty for what this machine pushed last, else for the job file beside
            the spec.
        settings: of the machine.
        progress: receives waits.

    Raises UsageError where nothing names an image, and what reading images raises.
    """
    with connect(settings, progress) as registries:
        found = dict(_find_images(inputs, image, registries, settings))
        if not found:
            raise UsageError(
                f"{inputs.repository}: this machine has pushed no image, and no job file beside the spec names one",
                hint="imgtool show --why TAG, --why sha256:DIGEST or --why JOB_FILE",
            )
        return tuple(_explain_role(inputs, role, found) for role in inputs.images)


def _explain_role(inputs: Inputs, image: RoleImage, found: dict[str, tuple[StoredInputs, str]]) -> Why:
    if str(image.role) not in found:
        return Why(image=image, stored=None, source=f"no image here, only of {', '.join(sorted(found))}")
    stored, source = found[str(image.role)]
    planned = read_planned(inputs, image)
    differences = compare(stored.inputs, planned)
    notes = []
    was, now = stored.inputs.attested, planned.attested
    if was is None and differences:
        notes.append("packages and parameters are not compared: nothing that says them is attached to this image")
    if was and now and not differences:
        notes += [
            f"the {name} has another text than when the image was made, in what no image depends on"
            for name in sorted(now.texts)
            if was.texts.get(name) not in {None, now.texts[name]}
        ]
    return Why(image=image, stored=stored, source=source, differences=differences, notes=tuple(notes))


def _find_images(
    inputs: Inputs, image: str, registries: Registries, settings: Settings
) -> Iterator[tuple[str, tuple[StoredInputs, str]]]:
    """Yields the image that is named for each role."""
    platform = inputs.plan.platform
    if not image:
        yield from _find_last(inputs, registries, settings)
        return
    path = Path(image)
    if path.is_file():
        for digest in _read_job_file(path, inputs):
            stored = read_stored(digest, platform, registries, settings)
            yield stored.role, (stored, path.name)
        return
    roles = {str(role.role) for role in inputs.images}
    some = False
    for ref in _name_images(inputs, image):
        if isinstance(ref, Tag) and registries.at(ref.repository).head(ref) is None:
            continue
        stored = read_stored(ref, platform, registries, settings)
        some = True
        if stored.role not in roles:
            raise UsageError(f"{image} is an image of the role {stored.role}: the spec has {', '.join(sorted(roles))}")
        yield stored.role, (stored, "")
    if not some:
        raise RegistryRefusedError(f"{inputs.repository} has no image {image}", hint=_IMAGES)


def _find_last(
    inputs: Inputs, registries: Registries, settings: Settings
) -> Iterator[tuple[str, tuple[StoredInputs, str]]]:
    platform, repository = inputs.plan.platform, inputs.repository
    some = False
    for image in inputs.images:
        pushed = find_pushed(settings.cache, repository, str(image.role), platform)
        if pushed is not None:
            some = True
            stored = read_stored(repository.digest(pushed.digest), platform, registries, settings)
            yield str(image.role), (stored, "pushed last from this machine")
    if some:
        return
    for path in _list_job_files(inputs):
        for digest in _read_job_file(path, inputs):
            stored = read_stored(digest, platform, registries, settings)
            yield stored.role, (stored, path.name)
        return


def _name_images(inputs: Inputs, image: str) -> Iterator[Tag | Digest]:
    """Yields what a word may name: a digest, a reference, or a tag of the repository, ROLE-TAG for several roles."""
    repository = inputs.repository
    if re.fullmatch(_DIGEST, image):
        yield repository.digest(image)
    elif "/" in image or "@" in image:
        try:
            yield parse_reference(image)
        except InputError as error:
            raise UsageError(f"--why {image}: {error.message}", hint=_IMAGES) from error
    else:
        names = dict.fromkeys(
            [image, *(name_for_role(image, role.role, of=len(inputs.images)) for role in inputs.images)]
        )
        for name in names:
            try:
                yield repository.tag(name)
            except InputError as error:
                raise UsageError(f"--why {image}: {error.message}", hint=_IMAGES) from error


def _list_job_files(inputs: Inputs) -> list[Path]:
    """Lists the job files beside the spec that imgtool wrote for its repository, the newest first."""
    name = f"{inputs.repository}@".encode()
    found = []
    for path in inputs.spec_file.folder.iterdir():
        with suppress(OSError):  # what cannot be read is no job file of this user
            state = path.stat()
            if S_ISREG(state.st_mode) and state.st_size < _LARGEST_FILE:
                text = path.read_bytes()
                if _WRITTEN in text[:400] and name in text:
                    found.append((state.st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


def _read_job_file(path: Path, inputs: Inputs) -> list[Digest]:
    """Reads the images of the spec's repository that a job file names."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LocalFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    name = re.escape(str(inputs.repository))
    found = list(dict.fromkeys(re.findall(f"{name}@({_DIGEST})", text)))
    if not found:
        raise UsageError(
            f"{path}: names no image of {inputs.repository} by digest",
            hint=f"for the spec {path.name} itself: imgtool show {path} --why",
        )
    return [inputs.repository.digest(digest) for digest in found]
