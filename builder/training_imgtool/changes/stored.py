"""The inputs of an image in a registry: from its config, what is attached to it, and its layers of files.

imgtool's own lines of the history are the instructions, letter for letter. An engine's lines are not, so of what an
engine made the config tells the settings, and the provenance the rest.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.attest import cyclonedx, provenance
from training_imgtool.changes.inputs import Attested, File, ImageInputs, Sheet, TextReader, read_attested
from training_imgtool.core.errors import ImgtoolError, RegistryRefusedError, VerificationError
from training_imgtool.core.reference import Digest, Repository, Tag, apply_mirror, parse_reference
from training_imgtool.core.settings import Settings
from training_imgtool.direct.image.image import HISTORY_COMMENT, read_config
from training_imgtool.direct.layers.codecs import decompress
from training_imgtool.direct.layers.tar_reader import FILE, HARD_LINK, TarReader
from training_imgtool.direct.registry.stored_stages import StoredStages
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.evaluate import evaluate
from training_imgtool.dockerfile.parse import parse
from training_imgtool.dockerfile.render import BASE_DIGEST, BASE_NAME
from training_imgtool.pipeline.attach import read_statement
from training_imgtool.plan import KEY_LABEL, ROLE_LABEL
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import Descriptor
from training_imgtool.registry.referrers import list_referrers

_LARGEST_LAYER = 100_000_000  # bytes: of more, only the size is compared
_VENV = re.compile(rf"COPY .*{install_step.VENV}(?::| *\Z| .*)")
_ENGINES_WORDS = re.compile(r"\A/bin/sh -c #\(nop\) +| # buildkit\Z|\A(?=/bin/sh -c )")
_SHELL = re.compile(r"\A(?:RUN )?(?:\|\d+ .*?)?/bin/sh -c ", re.DOTALL)
_NAMES = re.compile(r"(?:\A|\s)([A-Za-z_][\w./-]*)=")
_FIELDS = {"USER": "User", "WORKDIR": "WorkingDir", "ENTRYPOINT": "Entrypoint", "CMD": "Cmd"}


@dataclass(frozen=True, slots=True)
class StoredInputs:
    """An image of a registry: its name, its role, and what it is made from."""

    digest: Digest
    role: str
    inputs: ImageInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenImage:
    """Manifest and config of an image of imgtool.

    Attributes:
        digest: its own.
        base: the base that its labels name, by digest.
        settings: the config's `config` object.
        config: the config itself.
        below: the layers of the base.
        own: the lines of the history above the base's, each with its layer if it made one.
    """

    digest: Digest
    base: str
    settings: Mapping[str, Any]
    config: Descriptor
    below: tuple[Descriptor, ...]
    own: tuple[tuple[Mapping[str, Any], Descriptor | None], ...]

    @property
    def labels(self) -> Mapping[str, str]:
        """The image's labels."""
        labels: Mapping[str, str] = self.settings.get("Labels") or {}
        return labels


def open_image(ref: Tag | Digest, platform: str, registries: Registries, settings: Settings) -> OpenImage:
    """Reads manifest and config, and those of the base; raises as `read_stored`."""
    registry = registries.at(ref.repository)
    manifest = registry.manifest(ref, platform)
    config = read_config(registry.read(ref.repository, manifest.config))
    labels: Mapping[str, str] = (config.get("config") or {}).get("Labels") or {}
    if KEY_LABEL not in labels or ROLE_LABEL not in labels:
        raise VerificationError(f"{ref} is no image of imgtool: it has no label {KEY_LABEL}")
    base = f"{labels.get(BASE_NAME, '')}@{labels.get(BASE_DIGEST, '')}"
    lines = config.get("history") or []
    own = lines[_count_lines(base, platform, registries, settings, lines) :]
    made = [not line.get("empty_layer") for line in own]
    count = len(manifest.layers) - sum(made)
    above = iter(manifest.layers[count:])
    return OpenImage(
        digest=ref.repository.digest(manifest.digest),
        base=base,
        settings=config.get("config") or {},
        config=manifest.config,
        below=manifest.layers[:count],
        own=tuple((line, next(above, None) if makes else None) for line, makes in zip(own, made, strict=True)),
    )


def read_stored(ref: Tag | Digest, platform: str, registries: Registries, settings: Settings) -> StoredInputs:
    """Reads an image of imgtool; raises VerificationError for one of others, and what reading raises."""
    opened = open_image(ref, platform, registries, settings)
    registry, repository, labels = registries.at(ref.repository), ref.repository, opened.labels
    texts = [read_instruction(line) for line, _ in opened.own]
    direct = [line.get("comment") == HISTORY_COMMENT for line, _ in opened.own]
    layers = [layer for _, layer in opened.own]
    copies = [layer for text, layer in zip(texts, layers, strict=True) if layer and _places_files(text)]
    readable = [layer for layer in copies if layer.size <= _LARGEST_LAYER]
    files: dict[str, File] = {}
    reader = TextReader({})
    for layer in readable:
        files |= _read_layer(decompress(registry.blob(repository, layer)), reader)
    sheet, mixed = _read_sheet(texts, direct, opened.settings)
    return StoredInputs(
        opened.digest,
        labels[ROLE_LABEL],
        ImageInputs(
            key=labels[KEY_LABEL],
            base=opened.base,
            files=files,
            settings=sheet.result(),
            steps=tuple(sheet.steps),
            attested=_read_attached(opened.digest, registries),
            unclear=frozenset({"ENV"}) if mixed else frozenset(),
            unread=sum(layer.size for layer in copies) - sum(layer.size for layer in readable),
        ),
    )


def _count_lines(
    base: str, platform: str, registries: Registries, settings: Settings, lines: list[Mapping[str, Any]]
) -> int:
    """Counts the lines of the history that are the base's; where the base is gone, those before imgtool's first."""
    try:
        found = parse_reference(base)
        if isinstance(found, Digest):
            where = apply_mirror(found.repository, settings.mirrors).digest(found.digest)
            stored = StoredStages(registries, settings.cache).base(where, platform)
            return len(read_config(stored.config).get("history") or [])
    except ImgtoolError:
        pass
    marks = (
        line.get("comment") == HISTORY_COMMENT or install_step.VENV in str(line.get("created_by")) for line in lines
    )
    return next((number for number, mark in enumerate(marks) if mark), len(lines))


def read_instruction(line: Mapping[str, Any]) -> str:
    """Reads the instruction of a line of the history, without what engines write around it."""
    return _ENGINES_WORDS.sub("", str(line.get("created_by", "")))


def _places_files(text: str) -> bool:
    return text.startswith(("COPY ", "ADD ", "WORKDIR ")) and not _VENV.match(text)


def _read_layer(archive: Iterator[bytes], texts: TextReader) -> dict[str, File]:
    files: dict[str, File] = {}
    reader = TarReader(archive)
    for member in reader.members():
        path = posixpath.normpath(f"/{member.path}")
        owner = f"{member.attributes.uid}:{member.attributes.gid}"
        content, text = member.target, None
        if member.kind == FILE:
            content, text = texts.read(member.size, reader.content())
        if member.kind == HARD_LINK and (other := files.get(posixpath.normpath(f"/{member.target}"))):
            files[path] = other
            continue
        files[path] = File(member.kind, member.attributes.mode, owner, content, member.size, text)
    return files


def _read_sheet(texts: list[str], direct: list[bool], settings: Mapping[str, Any]) -> tuple[Sheet, bool]:
    """Reads settings and steps; tells whether an engine wrote some of them, whose variables are expanded."""
    sheet, by_engine = Sheet(), False
    for text, own in zip(texts, direct, strict=True):
        if _VENV.match(text):
            continue
        if own:
            _add_own(sheet, text)
            continue
        by_engine = True
        word, _, rest = text.partition(" ")
        if word in {"ENV", "LABEL"}:
            _add_pairs(sheet, word, _NAMES.findall(rest), settings)
        elif (name := _FIELDS.get(word)) and name in settings:
            sheet.settings[name] = settings[name]
        elif match := _SHELL.match(text):
            sheet.add_text(f"RUN {text[match.end() :]}")
    return sheet, by_engine


def _add_own(sheet: Sheet, text: str) -> None:
    try:
        dockerfile = parse(f"FROM scratch\n{text}\n")
        env = sheet.result()["Env"]
        (step,) = evaluate(dockerfile, dockerfile.stages[0], env)
    except (ImgtoolError, ValueError):
        sheet.add_text(text)
        return
    if step.name in {"COPY", "ADD"}:
        sheet.add_text(text)
    else:
        sheet.add(step)


def _add_pairs(sheet: Sheet, word: str, names: list[str], settings: Mapping[str, Any]) -> None:
    env = dict(str(pair).partition("=")[::2] for pair in settings.get("Env") or [])
    values = env if word == "ENV" else settings.get("Labels") or {}
    chosen = {name: values[name] for name in names if name in values}
    if word == "LABEL":
        sheet.settings["Labels"] = {**(sheet.settings.get("Labels") or {}), **chosen}
    else:
        before = sheet.result()["Env"]
        sheet.settings["Env"] = [f"{name}={value}" for name, value in {**before, **chosen}.items()]


def _read_attached(digest: Digest, registries: Registries) -> Attested | None:
    """Reads the bill and the provenance; None unless both are attached. Others than imgtool's are passed over."""
    registry, repository = registries.at(digest.repository), digest.repository
    found: dict[str, dict[str, Any]] = {}
    for referrer in list_referrers(registry, digest):
        if referrer.artifact_type not in {cyclonedx.MEDIA_TYPE, provenance.MEDIA_TYPE}:
            continue
        try:
            found |= _read_referrer(repository, referrer.descriptor, referrer.artifact_type, registries)
        except (VerificationError, RegistryRefusedError, ValueError, LookupError, TypeError, RecursionError):
            continue
    try:
        return read_attested(found[cyclonedx.MEDIA_TYPE], found[provenance.MEDIA_TYPE])
    except (LookupError, TypeError, AttributeError):
        return None


def _read_referrer(
    repository: Repository, descriptor: Descriptor, kind: str, registries: Registries
) -> dict[str, dict[str, Any]]:
    registry = registries.at(repository)
    manifest = registry.manifest(repository.digest(descriptor.digest))
    if kind == cyclonedx.MEDIA_TYPE:
        return {kind: json.loads(registry.read(repository, manifest.layers[0]))}
    statement = json.loads(read_statement(registry, repository, manifest))
    return {kind: statement["predicate"]} if statement["predicateType"] == provenance.PREDICATE else {}
