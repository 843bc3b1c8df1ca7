"""`imgtool show --history`: lists the images of a repository by the date of their first push."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from training_imgtool.base.errors import UsageError
from training_imgtool.base.reference import Digest
from training_imgtool.base.threads import run_all
from training_imgtool.make.origin import COMMIT, DATE, DIRTY, KIND, read_push_note
from training_imgtool.model.spec import Role
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.referrers import read_referrers
from training_imgtool.plan.inputs import Inputs

_KEYED = re.compile(r"(?P<what>[a-z0-9]+)-[0-9a-f]{32,64}(?:\.\w+)?")  # imgtool's tags, and cosign's
_MOST = 20  # notes that imgtool reads per image, because everyone who can push can attach notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """An image of the repository, with its tags and the note that its first push attached; the note may be empty."""

    digest: str
    tags: tuple[str, ...]
    note: dict[str, str]

    def as_data(self) -> dict[str, Any]:
        """Returns the row as data for --json."""
        return {
            "date": self.note.get(DATE),
            "commit": self.note.get(COMMIT),
            "dirty": self.note[DIRTY] == "true" if DIRTY in self.note else None,
            "digest": self.digest,
            "tags": list(self.tags),
        }

    def as_text(self) -> str:
        """Returns the row as text."""
        commit = self.note.get(COMMIT, "-")[:12] + (" dirty" if self.note.get(DIRTY) == "true" else "")
        return f"{self.note.get(DATE, '-'):20}  {commit:18}  {self.digest[:19]}  {' '.join(self.tags)}\n"


def list_pushed(inputs: Inputs, machine: Machine) -> tuple[Pushed, ...]:
    """Lists the images that have a tag of imgtool, newest first; raises UsageError if the spec has no registry."""
    repository = inputs.repository
    if inputs.target is None:
        raise UsageError("no registry", hint="give `registry:` in the spec, --registry HOST/PATH, or IMGTOOL_REGISTRY")
    registry = machine.registries.at(repository)
    roles = {str(role) for role in Role}
    keyed = {tag: _KEYED.fullmatch(tag) for tag in registry.list_tags(repository)}
    tags = [tag for tag, match in keyed.items() if match is None or match["what"] in roles]
    heads = run_all({tag: partial(registry.head, repository.tag(tag)) for tag in tags})
    images: dict[str, list[str]] = {}
    for tag, digest in heads.items():
        if digest is not None:
            images.setdefault(digest, []).append(tag)
    images = {digest: own for digest, own in images.items() if any(keyed[tag] for tag in own)}
    notes = run_all({digest: partial(_read_note, registry, repository.digest(digest)) for digest in images})
    rows = [Pushed(digest=digest, tags=tuple(own), note=notes[digest]) for digest, own in images.items()]
    return tuple(sorted(rows, key=lambda row: (row.note.get(DATE, ""), row.digest), reverse=True))


def _read_note(registry: Registry, image: Digest) -> dict[str, str]:
    """Returns the earliest note about an image. Several machines can push an image at once."""
    return min(_notes(registry, image), key=lambda note: note[DATE], default={})


def _notes(registry: Registry, image: Digest) -> Iterator[dict[str, str]]:
    listed = [entry for entry in read_referrers(registry, image) if entry.get("artifactType") == KIND]
    for digest in list(dict.fromkeys(str(entry["digest"]) for entry in listed))[:_MOST]:
        manifest = registry.find_manifest(image.repository.digest(digest))
        if manifest is not None and (note := read_push_note(manifest)):
            yield note
