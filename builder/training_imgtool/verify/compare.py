"""Compares an image in a registry with the image that this machine made from the same inputs.

imgtool does not interpret the content of the registry's image. The manifest and the config must be the same bytes as
those that this machine writes. A layer with another digest may contain the same archive, compressed by another library.
imgtool decompresses such a layer, and the result must be the archive that this machine made.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from training_imgtool.base.errors import RegistryRefusedError, VerificationError
from training_imgtool.base.reference import Digest
from training_imgtool.oci.direct.tree import PLAIN, Attributes
from training_imgtool.oci.image.image import DirectImage, dump_document
from training_imgtool.oci.layers.codecs import decompress, decompress_strictly
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.layers.tar_reader import FILE, FOLDER, TarReader
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.manifests import Descriptor, Manifest, read_document, sha256_digest
from training_imgtool.verify.findings import Accepted, Finding, Status, mismatch, ok, unproven

_MOST_NAMED = 3  # differences in one line
_MOST_BYTECODE = 5  # files in one line
_OF_FILE = Attributes(0o644)
_LIBRARY = r"(?:opt/venv|usr/(?:local/)?lib/python3(?:\.\d+)?)/"
_BYTECODE_FILE = rf"{_LIBRARY}(?:(?!\.{{1,2}}/)[^/]+/)*__pycache__/[^/]+\.pyc\Z"
_BYTECODE_FOLDER = rf"(?:opt/|usr/(?:local/)?(?:lib/)?|{_LIBRARY}(?:(?!\.{{1,2}}/)[^/]+/)*)\Z"
_LARGEST_BYTECODE = 1000  # times the compressed size of the layer made here: the highest ratio of gzip


def compare_image(
    registry: Registry, image: Digest, manifest: Manifest, made: DirectImage, *, compiles_alike: Callable[[], bool]
) -> tuple[Finding, ...]:
    """Compares an image in a registry with the image that this machine made.

    Args:
        registry: the client of the image's registry.
        image: the image.
        manifest: the manifest that the registry has under the image's digest; its layers and config are descriptors.
        made: the image as this machine made it.
        compiles_alike: whether this machine has exactly the image's release of Python. Releases of one minor version
            compile a few percent of the files differently.

    Raises what reading from the registry and making a layer again raise.
    """
    return _Comparison(registry, image, manifest, made, compiles_alike).run()


@dataclass(slots=True)
class _Comparison:
    """One comparison.

    `_wanted` is the manifest that the registry must have; `run` adapts it to layers compressed otherwise.
    """

    registry: Registry
    image: Digest
    manifest: Manifest
    made: DirectImage
    compiles_alike: Callable[[], bool]
    _wanted: Any = field(init=False)
    _config: bytes = field(init=False)
    _bytecode: dict[int, str] = field(default_factory=dict)  # diff IDs of layers that this machine cannot make
    _differ: list[str] = field(default_factory=list)  # files in these layers

    def __post_init__(self) -> None:
        self._wanted, self._config = json.loads(self.made.manifest), self.made.config

    def run(self) -> tuple[Finding, ...]:
        wanted, there = self._wanted["layers"], self.manifest.document["layers"]
        if len(there) != len(wanted):
            return (mismatch("layers", f"{len(there)} layers", f"{len(wanted)} layers"),)
        of_base = len(self.made.base_layers)
        findings = [self._compare_base(there[:of_base]), *self._compare_layers(there, of_base)]
        findings.append(self._compare_config())
        self._wanted["config"] |= {"digest": sha256_digest(self._config), "size": len(self._config)}
        if not any(finding.status is Status.MISMATCH for finding in findings):
            findings.append(self._compare_manifest())
        return tuple(findings)

    def _compare_base(self, there: list[Any]) -> Finding:
        for number, (row, layer) in enumerate(zip(there, self._wanted["layers"], strict=False), 1):
            if row != layer:
                return mismatch("base", f"layer {number} is {_name(row)}", f"{_name(layer)}, as the base has it")
        return ok("base", f"every layer of the base in the lock ({len(there)})")

    def _compare_layers(self, there: list[Any], first: int) -> Iterator[Finding]:
        wrong: list[str] = []
        again = 0
        for number, layer in enumerate(self.made.layers, first):
            row, wanted = there[number], self._wanted["layers"][number]
            if row == wanted:
                continue
            if not _may_be_the_same(row, wanted):
                wrong.append(f"layer {number + 1} is {_name(row)}, not {_name(wanted)}")
                continue
            self._wanted["layers"][number] = row
            try:
                blob = self.registry.blob(self.image.repository, self.manifest.layers[number])
                if layer.is_bytecode and not self.compiles_alike():
                    self._bytecode[number], theirs = _read_bytecode(blob, layer.descriptor)
                    _, ours = _read_bytecode(layer.open(), layer.descriptor)
                    self._differ += sorted({path for path, _ in theirs.items() ^ ours.items()})
                    continue
                again += 1
                path = _find_difference(layer, blob)
            except (RegistryRefusedError, VerificationError) as error:
                path = error.message
            if path is not None:
                wrong.append(f"layer {number + 1} ({layer.history}): {path}")
        if wrong:
            yield mismatch("layers", "; ".join(wrong[:_MOST_NAMED]), f"the {len(self.made.layers)} layers made here")
        else:
            other = f", {again} of them compressed otherwise" if again else ""
            yield ok("layers", f"the {len(self.made.layers) - len(self._bytecode)} layers made here{other}")
        if self._bytecode:
            why = "this machine lacks the image's release of Python, and another one compiles some files differently"
            names = ", ".join(self._differ[:_MOST_BYTECODE]) + (", …" if len(self._differ) > _MOST_BYTECODE else "")
            found = f"{len(self._differ)} files in {len(self._bytecode)} layers differ ({names}): {why}"
            yield unproven("bytecode", found, Accepted.BYTECODE)

    def _compare_config(self) -> Finding:
        if self._bytecode:
            document = json.loads(self.made.config)
            for number, diff_id in self._bytecode.items():
                document["rootfs"]["diff_ids"][number] = diff_id
            self._config = dump_document(document)
        if self.manifest.config.digest == sha256_digest(self._config):
            return ok("config", "the settings and the history made here")
        return mismatch("config", self._describe_config(), "the settings and the history made here")

    def _describe_config(self) -> str:
        """Names the fields that differ between the stored config and the one made here."""
        try:
            there = read_document(self.registry.read(self.image.repository, self.manifest.config))
        except ValueError as error:
            return f"not a config that every engine reads alike: {error}"
        except (RegistryRefusedError, VerificationError) as error:
            return error.message
        return _name_differences(json.loads(self._config), there)

    def _compare_manifest(self) -> Finding:
        if dump_document(self._wanted) == self.manifest.body:
            return ok("manifest", self.manifest.digest)
        found = _name_differences(self._wanted, self.manifest.document)
        return mismatch("manifest", found, "the manifest made here")


def _may_be_the_same(row: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Returns whether two descriptors may differ only in how the layer's archive was compressed."""
    return row["digest"] != wanted["digest"] and {**row, "digest": wanted["digest"], "size": wanted["size"]} == wanted


def _name(row: dict[str, Any]) -> str:
    return f"{row['digest'][:19]} of {row['size']} bytes, {row.get('mediaType')}"


def _name_differences(wanted: Any, there: Any) -> str:
    names = list(_list_differences(wanted, there, ""))
    return f"{', '.join(names[:_MOST_NAMED])} differ" if names else "the same values in other bytes"


def _list_differences(wanted: Any, there: Any, path: str) -> Iterator[str]:
    """Names the fields in which two documents differ, down to the fields of `config`."""
    if path in {"", "config"} and isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for name in sorted({*wanted, *there}):
            if name not in wanted or name not in there or wanted[name] != there[name]:
                yield from _list_differences(wanted.get(name), there.get(name), f"{path}.{name}".strip("."))
    elif wanted != there:
        yield path


def _read_bytecode(stored: Iterator[bytes], made: Descriptor) -> tuple[str, dict[str, str]]:
    """Returns the diff ID (hash of the uncompressed content) of a layer, and the hash of each file by the file's path.

    Raises VerificationError for everything but bytecode files, and for a content that is too large; `made` is the layer
    made here.
    """
    digest, left = hashlib.sha256(), _LARGEST_BYTECODE * made.size

    def blocks() -> Iterator[bytes]:
        nonlocal left
        for block in decompress_strictly(stored, made.media_type):
            digest.update(block)
            left -= len(block)
            if left < 0:
                size = f"{_LARGEST_BYTECODE} times the size of the layer made here"
                raise VerificationError(f"its content is over {size}")
            yield block

    reader, files = TarReader(blocks()), dict[str, str]()
    for member in reader.members():
        is_folder = member.kind == FOLDER and member.attributes == PLAIN and f"{member.path.strip('/')}/"
        if is_folder and re.match(_BYTECODE_FOLDER, is_folder):
            continue
        if member.kind != FILE or member.attributes != _OF_FILE or not re.match(_BYTECODE_FILE, member.path):
            raise VerificationError(f"it has /{member.path}, which is no bytecode of a Python package")
        content = hashlib.sha256()
        for piece in reader.content():
            content.update(piece)
        files[member.path] = content.hexdigest()
    return f"sha256:{digest.hexdigest()}", files


def _find_difference(made: LayerSource, stored: Iterator[bytes]) -> str | None:
    """Returns the first difference in a stored layer; None if the layer is the archive that this machine made."""
    theirs = decompress_strictly(stored, made.descriptor.media_type)
    offset = _find_offset(decompress(made.open()), theirs)
    return None if offset is None else _name_path(made, offset)


def _find_offset(ours: Iterator[bytes], theirs: Iterator[bytes]) -> int | None:
    offset, left = 0, b""
    for block in ours:
        while len(left) < len(block) and (more := next(theirs, b"")):
            left += more
        if left[: len(block)] != block:
            return offset + next((at for at, (a, b) in enumerate(zip(left, block, strict=False)) if a != b), len(left))
        offset, left = offset + len(block), left[len(block) :]
    return offset if left or next(theirs, b"") else None


def _name_path(made: LayerSource, offset: int) -> str:
    """Names the path whose entry in the archive made here contains the byte at `offset`."""
    with tempfile.TemporaryFile() as file:
        file.writelines(decompress(made.open()))
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                if offset < member.offset_data + member.size:
                    return f"/{member.name} differs"
    return "there are more bytes after its last path"
