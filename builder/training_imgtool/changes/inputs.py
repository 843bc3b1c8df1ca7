"""The inputs of one image, in a form that does not depend on where they were read: from the plan, or from the image."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training_imgtool.attest import cyclonedx, provenance
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.files import Files
from training_imgtool.direct.image import image_config
from training_imgtool.dockerfile.evaluate import Expanded

LARGEST_TEXT = 1 << 19  # bytes of a file whose lines are counted
_MOST_TEXT = 8 << 20  # bytes of all of them
_PARAMETERS = ("platform", "python", "tensorflow", "accelerator", "template", "compression")


@dataclass(frozen=True, slots=True)
class File:
    """What is at a path of the image.

    Attributes:
        kind: a file, a link or a folder, as ustar's type flag.
        mode: permission bits.
        owner: `UID:GID`.
        content: the SHA-256 of a file, the target of a link.
        size: bytes.
        text: the content, where it is text and not large.
    """

    kind: str
    mode: int
    owner: str
    content: str
    size: int = 0
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attested:
    """What the bill of materials and the provenance of an image say.

    Attributes:
        parameters: versions and choices, by name.
        packages: the version and the SHA-256 of each wheel and Debian package, by name.
        system: Debian packages that the spec or the base asks for.
        left_out: paths below site-packages that the image lacks.
        stages: the key of each stage.
        texts: the SHA-256 of the spec and of the lock.
    """

    parameters: Mapping[str, str]
    packages: Mapping[str, tuple[str, str]]
    system: frozenset[str]
    left_out: frozenset[str]
    stages: Mapping[str, str]
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInputs:
    """All that is known of what one image is made from.

    Attributes:
        key: the content key.
        base: the base by digest.
        files: what COPY puts where, by absolute path.
        settings: the config's fields that instructions above the base set; Env and Labels are mappings.
        steps: the texts of the other instructions, in order.
        attested: None where nothing is attached to the image.
        unclear: values that the image has expanded, and the plan has not: they cannot be compared.
        unread: how many bytes of layers of files were too much to read.
    """

    key: str
    base: str
    files: Mapping[str, File]
    settings: Mapping[str, Any]
    steps: tuple[str, ...]
    attested: Attested | None
    unclear: frozenset[str] = frozenset()
    unread: int = 0


def read_attested(bill: Mapping[str, Any], predicate: Mapping[str, Any]) -> Attested:
    """Reads the documents that imgtool attaches; raises LookupError, TypeError or AttributeError for others."""
    build = predicate["buildDefinition"]
    parameters = build["externalParameters"]
    properties = {row["name"]: row["value"] for row in bill["metadata"]["component"].get("properties", ())}
    return Attested(
        parameters={name: str(parameters[name]) for name in _PARAMETERS if name in parameters},
        packages={
            row["name"]: (str(row["version"]), str(row.get("hashes", [{}])[0].get("content", "")))
            for row in bill["components"]
            if row["type"] == "library"
        },
        system=frozenset(parameters.get("systemPackages", ())),
        left_out=frozenset(properties.get("dev.imgtool.left-out", "").split()),
        stages={row["name"]: row["key"] for row in build["internalParameters"].get("stages", ())},
        texts={
            row["name"]: row["digest"]["sha256"]
            for row in build["resolvedDependencies"]
            if row["name"] in {"spec", "lock"}
        },
    )


def read_predicates(predicates: Mapping[str, Mapping[str, Any]]) -> Attested:
    """Reads what `pipeline.attach.describe` says of an image."""
    return read_attested(predicates[cyclonedx.PREDICATE], predicates[provenance.PREDICATE])


@dataclass(slots=True)
class Sheet:
    """Collects settings and steps, instruction by instruction."""

    settings: dict[str, Any] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def add(self, step: Expanded) -> None:
        """Adds an instruction that makes no files."""
        if step.name != "RUN":
            try:
                self.settings = image_config.apply(self.settings, step, cmd_set=True)
            except NeedsEngineError:
                pass
            else:
                return
        self.add_text(format_step(step))

    def add_text(self, text: str) -> None:
        """Adds an instruction that only its text tells of; a layer that was split has it twice in a row."""
        if self.steps[-1:] != [text]:
            self.steps.append(text)

    def result(self) -> dict[str, Any]:
        """Returns the settings, with the variables by name."""
        return {**self.settings, "Env": image_config.read_environment(self.settings)}


def format_step(step: Expanded) -> str:
    """Writes an instruction as the history of a direct image has it."""
    flags = "".join(f"--{name}{'' if value is None else f'={value}'} " for name, value in step.instruction.flags)
    return f"{step.name} {flags}{step.instruction.text}"


@dataclass(frozen=True, slots=True)
class Shared:
    """What the images of one run have in common, so that it is read once.

    Attributes:
        texts: of files, by SHA-256.
        copied: the tree and the files after the COPY instructions of a context, by it and their texts.
        noted: the files of a note, by its digest.
    """

    texts: dict[str, str | None] = field(default_factory=dict)
    copied: dict[tuple[object, ...], tuple[Files, Mapping[str, File]]] = field(default_factory=dict)
    noted: dict[str, Mapping[str, File]] = field(default_factory=dict)


class TextReader:
    """Keeps the contents that can be compared line by line, as long as there is room.

    Args:
        known: texts by their SHA-256, which need not be read; this reader adds to them.
    """

    def __init__(self, known: dict[str, str | None]) -> None:
        self._left = _MOST_TEXT
        self._known = known

    def recall(self, content: str, size: int, blocks: Iterable[bytes]) -> str | None:
        """Returns the text of the SHA-256 `content`; reads `blocks` only where nobody has yet, and there is room."""
        if size > min(LARGEST_TEXT, self._left):
            return None
        if content in self._known:
            self._left -= size
        else:
            self._known[content] = self.read(size, blocks)[1]
        return self._known[content]

    def read(self, size: int, blocks: Iterable[bytes]) -> tuple[str, str | None]:
        """Returns a file's SHA-256 and its text; None for what is no text, or too much."""
        keeps = size <= min(LARGEST_TEXT, self._left)
        digest, kept = hashlib.sha256(), bytearray()
        for block in blocks:
            digest.update(block)
            kept += block if keeps else b""
        self._left -= len(kept)
        try:
            text = bytes(kept).decode() if keeps and b"\0" not in kept else None
        except UnicodeDecodeError:
            text = None
        return digest.hexdigest(), text
