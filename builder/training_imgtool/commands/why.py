"""`imgtool show --why`: names the parts of an image's key that differ from those of the image that was pushed last.

A push notes the parts of each image's key, as a flat document, in the cache of the machine that pushes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_imgtool.context.entries import Entry
from training_imgtool.core.errors import UsageError
from training_imgtool.core.json_cache import make_file_name, read_cached, write_cached
from training_imgtool.core.sanitize import join_lines
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.mounts import needed_stages
from training_imgtool.dockerfile.parse import Instruction
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.platforms import pair_parts
from training_imgtool.pipeline.request import BuildResult
from training_imgtool.plan import KEY_LABEL

_MOST = 16 << 20  # bytes of a note
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """One role's image beside the one that this machine pushed last; `differences` has name, text then, text now."""

    image: RoleImage
    pushed: str
    pushed_key: str
    differences: tuple[tuple[str, str | None, str | None], ...]

    def as_data(self) -> dict[str, Any]:
        """Returns the row as JSON has it."""
        return {
            "role": str(self.image.role),
            "key": self.image.key,
            "image": self.pushed,
            "image_key": self.pushed_key,
            "differences": [{"name": name, "was": was, "now": now} for name, was, now in self.differences],
        }

    def as_text(self) -> str:
        """Returns the row for people."""
        lines = [f"{self.image.role}: {self.pushed}, pushed last from this machine"]
        lines += [f"  {join_lines(_describe(*difference))}" for difference in self.differences]
        if self.image.key == self.pushed_key:
            lines.append("  nothing differs: the spec, the lock and the code come to this image's key")
        return "".join(f"{line}\n" for line in lines)


def explain(inputs: Inputs, cache: Path) -> tuple[Why, ...]:
    """Compares each role with its last image; raises UsageError if this machine has pushed none."""
    rows = []
    for image in inputs.images:
        note = read_cached(_path_of(cache, inputs, image), _MOST)
        if isinstance(note, dict):
            was, now = note["parts"], list_parts(inputs, image)
            names = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
            differences = tuple((name, was.get(name), now.get(name)) for name in names)
            rows.append(Why(image=image, pushed=note["image"], pushed_key=note["key"], differences=differences))
    if not rows:
        raise UsageError(f"{inputs.repository}: this machine has pushed no image of this spec yet")
    return tuple(rows)


def note_pushed(inputs: Inputs, results: Iterable[BuildResult], cache: Path) -> None:
    """Notes the parts of each image's key that a push made or found."""
    for own, result in pair_parts(inputs, results):
        (image,) = own.selected((result.role,))
        path = _path_of(cache, own, image)
        note = read_cached(path, _MOST)
        if not isinstance(note, dict) or note.get("image") != result.reference:
            parts = list_parts(own, image)
            write_cached(path, {"image": result.reference, "key": result.key, "parts": parts}, _MOST, mode=_PRIVATE)


def list_parts(inputs: Inputs, image: RoleImage) -> dict[str, str]:
    """Lists what an image's key is made of: a text by the name of each part."""
    plan, parts = image.plan, dict[str, str]()
    parts |= {"platform": plan.platform, "compression": inputs.plan.compression}
    parts |= {"base": f"{plan.base_name}@{plan.base.digest}", "pip": plan.locked.installer.version}
    parts |= {f"wheel {wheel.name}": f"{wheel.version} {wheel.sha256[:12]}" for wheel in plan.locked.wheels}
    if plan.locked.debian is not None:
        parts |= {f"debian {package.name}": package.version for package in plan.locked.debian.packages}
    for stage in needed_stages(image.dockerfile, image.dockerfile.stages[-1]):
        for instruction in stage.instructions:
            parts |= dict(_list_texts(stage.label, instruction))
            for entry in _list_files(inputs, instruction):
                parts[f"file {entry.path}"] = f"{entry.mode:o} {(entry.sha256 or entry.target or '')[:12]}".rstrip()
    return parts


def _list_texts(label: str, instruction: Instruction) -> Iterator[tuple[str, str]]:
    if instruction.name in {"ENV", "ARG", "LABEL"}:
        for name, value in instruction.pairs:
            if name != KEY_LABEL:
                yield f"{label} {instruction.name} {name}", value or ""
    elif instruction.name in {"RUN", "COPY", "ADD"}:
        text = " ".join([instruction.text, *(document.text for document in instruction.heredocs)])
        yield f"{label} {instruction.name} {text}", ""
    else:
        yield f"{label} {instruction.name}", instruction.text


def _list_files(inputs: Inputs, instruction: Instruction) -> Iterator[Entry]:
    """Yields what an instruction copies from the context, without the wheels."""
    if instruction.name in {"COPY", "ADD"} and instruction.flag("from") is None and instruction.sources:
        for entry in inputs.context.select(instruction.sources).entries:
            if entry.path.split("/")[0] != install_step.context_root():
                yield entry


def _describe(name: str, was: str | None, now: str | None) -> str:
    if was is None:
        return f"{name} added{f': {now}' if now else ''}"
    return f"{name} removed" if now is None else f"{name}: {was} → {now}"


def _path_of(cache: Path, inputs: Inputs, image: RoleImage) -> Path:
    return cache / "pushed" / make_file_name(f"{inputs.repository} {image.role} {inputs.plan.platform}")
