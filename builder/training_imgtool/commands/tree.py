"""`imgtool show --tree`: the layers of a spec's images, which roles share them, and what the last change sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from training_imgtool.changes.pushed import Pushed, find_pushed
from training_imgtool.changes.stored import OpenImage, open_image, read_instruction
from training_imgtool.core.errors import InputError
from training_imgtool.core.progress import Progress
from training_imgtool.core.sanitize import join_lines
from training_imgtool.core.settings import Settings
from training_imgtool.dockerfile import install_step
from training_imgtool.pipeline.find import find_image
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.registry.connect import Registries, connect

_LONGEST = 80  # characters of an instruction
_WHEELS = re.compile(rf"COPY ({install_step.VENV}: .+) # imgtool, from wheels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One layer, or the config, of some roles.

    Attributes:
        digest: of the blob.
        size: compressed bytes.
        roles: whose images have it.
        text: what it holds.
        is_new: whether the image that this machine pushed before the last change lacks it; None if it does not know.
    """

    digest: str
    size: int
    roles: tuple[str, ...]
    text: str
    is_new: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The images of a spec.

    Attributes:
        images: the digest of each role's image.
        stale: the roles whose image is the one that was pushed last, not that of the present inputs.
        branches: what they consist of, each once.
    """

    images: dict[str, str]
    stale: tuple[str, ...]
    branches: tuple[Branch, ...]

    def as_data(self) -> dict[str, Any]:
        """Returns the tree as JSON has it."""
        return {
            "images": [
                {"role": role, "image": image, "size": self._measure(role), "current": role not in self.stale}
                for role, image in self.images.items()
            ],
            "size": sum(branch.size for branch in self.branches),
            "layers": [
                {
                    "digest": branch.digest,
                    "size": branch.size,
                    "roles": list(branch.roles),
                    "text": branch.text,
                    "new": branch.is_new,
                }
                for branch in self.branches
            ],
        }

    def as_text(self, format_size: Callable[[int], str]) -> str:
        """Returns the tree for people: the layers that the same roles share together, lowest first."""
        lines = [f"{role}: {format_size(self._measure(role))}, {image}" for role, image in self.images.items()]
        lines += [f"{role} is not pushed: this is its last image; imgtool show --why" for role in self.stale]
        groups: dict[tuple[str, ...], list[Branch]] = {}
        for branch in self.branches:
            groups.setdefault(branch.roles, []).append(branch)
        for roles, branches in groups.items():
            total = format_size(sum(branch.size for branch in branches))
            lines += ["", f"{', '.join(roles)}{' share' if len(roles) > 1 else ' alone'}: {total}"]
            for branch in branches:
                is_last = branch is branches[-1]
                mark = "  ← sent by the last change" if branch.is_new else ""
                lines.append(f"{'└' if is_last else '├'} {format_size(branch.size):>9}  {branch.text}{mark}")
        if new := [branch.size for branch in self.branches if branch.is_new]:
            count = f"{len(new)} of {len(self.branches)} blobs"
            lines += ["", f"the last change sent {count}, {format_size(sum(new))}; the next one like it sends as much"]
        return "".join(f"{line}\n" for line in lines)

    def _measure(self, role: str) -> int:
        return sum(branch.size for branch in self.branches if role in branch.roles)


def read_tree(inputs: Inputs, settings: Settings, progress: Progress) -> Tree:
    """Reads the images of one platform: those of the present inputs, else those that this machine pushed last.

    Raises InputError if the registry has no image of the spec, and what reading from it raises.
    """
    opened: dict[str, OpenImage] = {}
    notes: dict[str, Pushed | None] = {}
    stale = []
    with connect(settings, progress) as registries:
        for image in inputs.images:
            role = str(image.role)
            notes[role] = find_pushed(settings.cache, inputs.repository, role, inputs.plan.platform)
            found, is_current = _find(inputs, image, notes[role], registries, settings)
            if found is not None:
                opened[role] = found
                stale += [] if is_current else [role]
    if not opened:
        raise InputError(f"{inputs.repository} has no image of this spec", hint=f"imgtool push {inputs.spec_file.path}")
    return Tree(
        images={role: str(image.digest) for role, image in opened.items()},
        stale=tuple(stale),
        branches=tuple(_list_branches(opened, notes)),
    )


def _find(
    inputs: Inputs, image: RoleImage, last: Pushed | None, registries: Registries, settings: Settings
) -> tuple[OpenImage | None, bool]:
    platform = inputs.plan.platform
    digest = find_image(registries, image.registry_tag)
    if digest is not None:
        return open_image(digest, platform, registries, settings), True
    if last is None:
        return None, False
    return open_image(inputs.repository.digest(last.digest), platform, registries, settings), False


def _list_branches(opened: dict[str, OpenImage], notes: dict[str, Pushed | None]) -> Iterator[Branch]:
    rows = {role: list(_list_blobs(image)) for role, image in opened.items()}
    seen = set()
    for role, blobs in rows.items():
        for digest, size, text in blobs:
            if digest in seen:
                continue
            seen.add(digest)
            roles = tuple(other for other, theirs in rows.items() if digest in {blob for blob, _, _ in theirs})
            yield Branch(
                digest=digest,
                size=size,
                roles=roles,
                text=join_lines(text, limit=_LONGEST),
                is_new=_is_new(digest, opened[role], notes[role]),
            )


def _is_new(digest: str, image: OpenImage, note: Pushed | None) -> bool | None:
    if note is None or note.digest != image.digest.digest or not note.before:
        return None
    return digest not in note.before


def _list_blobs(image: OpenImage) -> Iterator[tuple[str, int, str]]:
    base = image.base.rpartition("@")[0].removeprefix("docker.io/").removeprefix("library/")
    for number, layer in enumerate(image.below, 1):
        yield layer.digest, layer.size, f"base {base}, {number} of {len(image.below)}"
    for line, own in image.own:
        if own is not None:
            text = read_instruction(line)
            match = _WHEELS.fullmatch(text)
            yield own.digest, own.size, match[1] if match else text
    yield image.config.digest, image.config.size, "the config: variables, labels, entry point"
