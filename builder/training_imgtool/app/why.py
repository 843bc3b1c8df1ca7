"""`imgtool show --why`: compares the current recipe of an image with the recipe of the image that was pushed last.

The provenance of each image in the registry contains the image's recipe. The machine that pushes an image keeps the
image's name in a file.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_imgtool.base.errors import UsageError
from training_imgtool.base.json_cache import make_file_name, read_cached, write_cached
from training_imgtool.base.reference import Digest, parse_reference
from training_imgtool.base.sanitize import join_lines
from training_imgtool.make.platforms import pair_parts
from training_imgtool.make.request import BuildResult
from training_imgtool.model.recipe.recipe import KEY_LABEL
from training_imgtool.oci.attest.provenance import ENVELOPE
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import read_document
from training_imgtool.oci.registry.referrers import statement_tag
from training_imgtool.plan.inputs import Inputs, RoleImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """One role's image now and the one pushed last; each of `differences` is (part's name, old text, new text)."""

    image: RoleImage
    pushed: str
    differences: tuple[tuple[str, str | None, str | None], ...]

    def as_data(self) -> dict[str, Any]:
        """Returns the row as data for --json."""
        return {
            "role": str(self.image.role),
            "key": self.image.key,
            "image": self.pushed,
            "differences": [{"name": name, "was": was, "now": now} for name, was, now in self.differences],
        }

    def as_text(self) -> str:
        """Returns the row as text."""
        lines = [f"{self.image.role}: {self.pushed}, pushed last from this machine"]
        lines += [f"  {join_lines(_describe(*difference))}" for difference in self.differences]
        if not self.differences:
            lines.append("  nothing differs: the spec, the lock and the code give this image's key")
        return "".join(f"{line}\n" for line in lines)


def explain(inputs: Inputs, state: Path, registries: Registries) -> tuple[Why, ...]:
    """Compares each role's current image with the image that this machine pushed last.

    Raises UsageError if this machine has not pushed an image of this spec, or if the registry lacks the image's recipe,
    and the errors of reading the registry.
    """
    rows = []
    for image in inputs.images:
        pushed = read_cached(_path_of(state, inputs, image))
        digest = parse_reference(pushed) if isinstance(pushed, str) else None
        if not isinstance(digest, Digest):
            continue
        document = _read_recipe(registries.at(digest.repository), digest)
        if document is None:
            hint = "images have a recipe unless `attestations: false` or IMGTOOL_ATTESTATIONS=off is set"
            raise UsageError(f"{digest}: the registry has no recipe of this image", hint=hint)
        was = dict(_flatten(document))
        now = dict(_flatten(image.recipe.publish_document(inputs.spec_file.spec.allow_secrets)))
        names = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
        differences = tuple((name, was.get(name), now.get(name)) for name in names)
        rows.append(Why(image=image, pushed=str(digest), differences=differences))
    if not rows:
        raise UsageError(f"{inputs.repository}: this machine has not pushed an image of this spec yet")
    return tuple(rows)


def note_pushed(inputs: Inputs, results: Iterable[BuildResult], state: Path) -> None:
    """Records, for each role, the name of the image that a push made or found."""
    for own, result in pair_parts(inputs, results):
        (image,) = own.selected((result.role,))
        path = _path_of(state, own, image)
        if read_cached(path) != result.reference:
            write_cached(path, result.reference)


def _read_recipe(registry: Registry, image: Digest) -> dict[str, Any] | None:
    """Reads the recipe from the provenance of an image; None if the registry has no provenance with a recipe."""
    manifest = registry.find_manifest(statement_tag(image))
    for layer in () if manifest is None or manifest.is_index else manifest.layers:
        if layer.media_type != ENVELOPE:
            continue
        with suppress(ValueError, LookupError, TypeError):
            envelope = read_document(registry.read(image.repository, layer))
            statement = read_document(base64.b64decode(envelope["payload"], validate=True))
            return dict(statement["predicate"]["buildDefinition"]["externalParameters"]["recipe"])
    return None


def _flatten(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each part of a recipe, such as `wheels numpy` and the wheel's hash."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name} ")
        elif isinstance(value, list):
            yield from ((f"{prefix}{name} {item}", "") for item in value)
        elif value not in {None, ""} and name != KEY_LABEL:
            yield f"{prefix}{name}", str(value)


def _describe(name: str, was: str | None, now: str | None) -> str:
    if was is None:
        return f"{name} added{f': {now}' if now else ''}"
    return f"{name} removed" if now is None else f"{name}: {was} → {now}"


def _path_of(state: Path, inputs: Inputs, image: RoleImage) -> Path:
    return (
        state
        / "pushed"
        / make_file_name(f"{inputs.spec_file.path.resolve()} {inputs.repository} {image.role} {inputs.spec.platform}")
    )
