"""Content keys: a stage's identity, from everything its bytes depend on and nothing else.

A key is the hash of the parent's digest or key, the instructions, what they copy, and the platform. Comments,
line breaks, the name of the repository a base is read from, and the label that carries the key do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from training_imgtool.context.context import Context
from training_imgtool.core.errors import InputError
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.dockerfile.mounts import Mount, list_mounts
from training_imgtool.dockerfile.parse import Dockerfile, DockerfileError, Instruction, Stage
from training_imgtool.dockerfile.substitution import expand
from training_imgtool.plan import KEY_LABEL

_VERSION = 1  # of what is hashed below; another number is another key for everything
_DEFAULT = "gzip"


def stage_keys(
    dockerfile: Dockerfile,
    context: Context,
    platform: str,
    compression: str,
    runs: Mapping[str, str],
) -> dict[str, str]:
    """Returns the content key (64 hexadecimal digits) of every stage, by its name, else its number.

    A stage without instructions is its parent: it has the parent's key, or the digits of its base's digest.

    Args:
        dockerfile: what is built.
        context: what COPY and ADD take from.
        platform: such as linux/amd64.
        compression: how the direct builder packs layers. `gzip` adds nothing to a key, and it never counts for a
            stage with a RUN that needs an engine, which packs layers in its own way.
        runs: the text of each RUN that the direct builder executes, with the identity of what it installs.

    Raises:
        DockerfileError: a base or a copied image without a digest, or a COPY that finds nothing; with `file:line`.
    """
    keys: dict[str, str] = {}
    for stage in dockerfile.stages:
        reader = _Reader(dockerfile, stage, context, keys, runs)
        try:
            identity = reader.identity(stage.base)
        except InputError as error:
            raise DockerfileError(f"{dockerfile.file}:{stage.line}: FROM: {error}", hint=error.hint) from error
        hashed = [parts for instruction in stage.instructions if (parts := reader.hash_parts(instruction))]
        direct = all(instruction.name != "RUN" or instruction.text in runs for instruction in stage.instructions)
        packing = [compression] if direct and compression != _DEFAULT else []
        key = _digest([_VERSION, stage.platform or platform, identity, _args(dockerfile, stage), hashed, *packing])
        keys[stage.label] = key if hashed else identity
    return keys


@dataclass(frozen=True, slots=True)
class _Reader:
    """What one stage's instructions read."""

    dockerfile: Dockerfile
    stage: Stage
    context: Context
    keys: Mapping[str, str]
    runs: Mapping[str, str]

    def identity(self, reference: str) -> str:
        """Returns the key of the stage, or the digits of the image's digest, that `FROM` or `--from` names."""
        earlier = self.dockerfile.earlier(reference, self.stage)
        if earlier is not None:
            return self.keys[earlier.label]
        if reference == "scratch":
            return hashlib.sha256(b"scratch").hexdigest()
        image = parse_reference(reference)
        if not isinstance(image, Digest):
            raise InputError(f"{reference}: an image without a digest has no content key", hint="add @sha256:…")
        return image.hex

    def hash_parts(self, instruction: Instruction) -> list[object]:
        """Returns the parts of an instruction that its key depends on."""
        try:
            if instruction.name == "LABEL":
                pairs = [pair for pair in instruction.pairs if expand(pair[0], {}, instruction.escape) != KEY_LABEL]
                return ["LABEL", pairs] if pairs else []
            if instruction.name in {"ENV", "ARG"}:
                return [instruction.name, instruction.pairs]
            heredocs = [[doc.text, doc.expands, doc.chomps] for doc in instruction.heredocs]
            words = list(instruction.words) if instruction.name in {"ADD", "COPY"} else instruction.json
            return [
                instruction.name,
                instruction.flags,
                words,
                "" if words else instruction.text,
                heredocs,
                self._sources(instruction),
            ]
        except InputError as error:
            raise DockerfileError(
                f"{self.dockerfile.file}:{instruction.line}: {instruction.name}: {error}", hint=error.hint
            ) from error

    def _sources(self, instruction: Instruction) -> list[str]:
        """Returns the identities of what an instruction reads besides its own text."""
        if instruction.name == "RUN":
            installed = [self.runs[instruction.text]] if instruction.text in self.runs else []
            return installed + [self._read_mount(mount) for mount in list_mounts(instruction)]
        if instruction.name not in {"ADD", "COPY"}:
            return []
        source = instruction.flag("from")
        if source is not None:
            return [self.identity(source)]
        if instruction.takes_variable:
            return [self.context.digest()]  # any file of the context may be what it takes
        return [self.context.digest(instruction.sources)] if instruction.sources else []

    def _read_mount(self, mount: Mount) -> str:
        if mount.image is not None:
            return self.identity(mount.image)
        return self.context.digest([mount.source]) if mount.reads_context else ""


def _args(dockerfile: Dockerfile, stage: Stage) -> list[object]:
    """Returns the ARGs before the first FROM, when the stage has an ARG that could take one's value."""
    taken = {
        name
        for instruction in stage.instructions
        if instruction.name == "ARG"
        for name, value in instruction.pairs
        if value is None
    }
    return [instruction.pairs for instruction in dockerfile.args] if taken else []


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()
