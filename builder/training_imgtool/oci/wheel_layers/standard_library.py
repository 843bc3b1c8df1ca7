"""Makes the layer with the bytecode of the standard library, where the image's Python has none.

Docker's Python images delete every `.pyc` file (docker-library/python#615), and Debian's packages get theirs from a
script that runs when an engine installs them. Without bytecode, each process compiles about 170 modules when it starts.

The bytecode is checked: Python compares it with the hash of the source (PEP 552), and compiles a module again that a
line of `run` has changed. The layer depends only on the sources and the compiler, so bases with the same standard
library share it. imgtool reads the layers of the base from the top down to the one that has the library.
"""

from __future__ import annotations

import functools
import hashlib
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from training_imgtool.base.errors import NeedsEngineError
from training_imgtool.model.lock import Variant
from training_imgtool.model.recipe import install_step
from training_imgtool.oci.layers import blobs
from training_imgtool.oci.layers.codecs import choose_codec, decompress
from training_imgtool.oci.layers.layer_cache import LayerRecord, Record, hash_fields
from training_imgtool.oci.layers.layers import LayerSource, list_folders, make_folder_item, sort_items
from training_imgtool.oci.layers.tar_reader import FILE, HARD_LINK, LINK, TarReader
from training_imgtool.oci.layers.tar_writer import VERSION, Item, write_tar
from training_imgtool.oci.layers.tarhead import Entry, Kind
from training_imgtool.oci.wheel_layers.bytecode import compile_sources
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools, LibraryFiles

NAME = "standard library bytecode"
_FIELD = "sources"
_LARGEST = 128 << 20  # bytes of all sources; Python 3.13 has 12 MB
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class _Source:
    mode: int
    data: bytes


def make_library_layer(variant: Variant, files: LibraryFiles, tools: LayerTools) -> tuple[LayerSource, ...]:
    """Makes the layer of a variant's standard library; none if its Python has bytecode, or is not in these layers.

    Raises:
        NoInterpreterError: this machine has no Python of this minor version.
        VerificationError: a layer does not match its digest, or is no archive; LocalFileError: as the cache raises it.
    """
    making = _Making(variant, files, tools)
    sources = making.find_sources()
    layer = making.layer(sources) if sources and install_step.has_hashed_bytecode(variant) else None
    if layer is None:
        return ()
    tools.ready(layer)
    return (layer,)


class _Making:
    """The state of one call of `make_library_layer`."""

    def __init__(self, variant: Variant, files: LibraryFiles, tools: LayerTools) -> None:
        self._variant, self._files, self._tools = variant, files, tools

    def find_sources(self) -> str:
        """Returns the hash of the sources that have no bytecode; empty if there are none."""
        executable = self._variant.python_executable
        key = hash_fields({"kind": "library", "version": VERSION, "in": self._files.digest, "python": executable})
        record = self._tools.cache.find(key)
        if record is None or _FIELD not in (record.claims or {}):
            record = Record((), {_FIELD: _hash_sources(self._sources)})
            self._tools.cache.keep(key, record)
        return (record.claims or {})[_FIELD]

    def layer(self, sources: str) -> LayerSource | None:
        """Makes the layer of the sources with this hash; None if none of them compiles."""
        key = hash_fields(
            {
                "kind": "library bytecode",
                "version": VERSION,
                "sources": sources,
                "python": [self._variant.python, self._tools.release],
                "mtime": self._tools.mtime,
                "codec": choose_codec(self._tools.compression).name,
            }
        )
        record = self._tools.cache.find(key)
        if record is None:
            record = Record(tuple(filter(None, (self._make(),))))
            self._tools.cache.keep(key, record)
        if not record.layers:
            return None
        made = record.layers[0]
        return LayerSource(
            descriptor=made.blob,
            diff_id=made.diff_id,
            history=f"RUN compileall: {NAME} # imgtool",
            open=partial(self._open, made, key),
            is_bytecode=True,
        )

    def _open(self, made: LayerRecord, key: str) -> Iterator[bytes]:
        cache = self._tools.cache
        if not cache.has_blob(made.blob) and self._make() != made:
            cache.forget(key)
            raise blobs.remade_error(made.blob, "a compiler or library here differs from the one that made it first")
        return cache.read_blob(made.blob)

    def _make(self) -> LayerRecord | None:
        sources = self._sources
        interpreter = self._tools.require_interpreter(self._variant.python)
        named = [(f"/{path}", source.data) for path, source in sources.items()]
        size = sum(len(data) for _, data in named)
        with ThreadPoolExecutor(self._tools.workers) as pool:
            compiled = list(
                compile_sources(interpreter, named, pool, size=size, ahead=self._tools.workers, checked=True)
            )
        items = {}
        for path, data in compiled:
            target, mode = interpreter.cached(path).strip("/"), 0o200 | sources[path.strip("/")].mode & 0o644
            items[target] = Item(Entry(path=target, kind=Kind.FILE, mode=mode, size=len(data)), data=data)
        if not items:
            return None
        caches = {posixpath.dirname(path) for path in items}
        folders = [make_folder_item(path) for path in list_folders(items, "") if path in caches]
        tar = write_tar(sort_items([*items.values(), *folders]), self._tools.mtime)
        return blobs.keep(NAME, self._tools.cache, choose_codec(self._tools.compression), tar)

    @functools.cached_property
    def _sources(self) -> dict[str, _Source]:
        """Reads the sources without bytecode, by their relative paths, sorted."""
        libraries = [f"{prefix}/lib/python{self._variant.python}" for prefix in self._prefixes()]
        reader = _Reader(tuple(libraries), f".cpython-{self._variant.python.replace('.', '')}.pyc")
        for blocks in self._files.layers():
            reader.read(blocks)
            if reader.has(libraries[0]):
                break
        library = next(filter(reader.has, libraries), None)
        return reader.list_sources(library) if library else {}

    def _prefixes(self) -> list[str]:
        """Returns where Python's `lib` may be: beside the executable, or in /usr if that is a link to Debian's."""
        own = posixpath.dirname(posixpath.dirname(self._variant.python_executable)).strip("/")
        return list(dict.fromkeys((own, "usr")))


class _Reader:
    """Collects the modules of standard libraries from layers, the highest first.

    Args:
        libraries: the folders of the libraries, relative to the root.
        ending: how the names of bytecode files end.
    """

    def __init__(self, libraries: tuple[str, ...], ending: str) -> None:
        self._libraries, self._ending = libraries, ending
        self._sources: dict[str, _Source | str | None] = {}  # a file, the target of a link, or what hides a lower entry
        self._compiled: set[str] = set()
        self._hidden: set[str] = set()
        self._left = _LARGEST

    def has(self, library: str) -> bool:
        return isinstance(self._sources.get(f"{library}/os.py"), _Source)

    def read(self, blocks: Iterable[bytes]) -> None:
        """Reads a layer below those read so far."""
        found: dict[str, _Source | str | None] = {}
        hidden: set[str] = set()
        reader = TarReader(decompress(iter(blocks)))
        for member in reader.members():
            path = posixpath.normpath(f"/{member.path}").lstrip("/")
            folder, _, name = path.rpartition("/")
            if name.startswith(_WHITEOUT):
                hidden.add(folder if name == _OPAQUE else posixpath.join(folder, name.removeprefix(_WHITEOUT)))
            elif not path.startswith(self._libraries) or self._is_hidden(path):
                continue
            elif name.endswith(self._ending) and folder.endswith("/__pycache__"):
                self._compiled.add(f"{posixpath.dirname(folder)}/{name.removesuffix(self._ending)}.py")
            elif not self._is_module(path):
                continue
            elif member.kind == FILE:
                self._left -= member.size
                if self._left < 0:
                    raise NeedsEngineError(f"the sources of the base's Python have more than {_LARGEST >> 20} MiB")
                found[path] = _Source(member.attributes.mode, b"".join(reader.content()))
            elif member.kind == HARD_LINK:
                found[path] = found.get(posixpath.normpath(f"/{member.target}").lstrip("/"))
            else:
                target = posixpath.join(folder, member.target) if member.kind == LINK else ""
                found[path] = posixpath.normpath(target).lstrip("/") if target else None
        self._sources = found | self._sources
        self._hidden |= hidden

    def _is_hidden(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in self._hidden)

    def _is_module(self, path: str) -> bool:
        library = next((one for one in self._libraries if path.startswith(f"{one}/")), None)
        return library is not None and path.endswith(".py") and not install_step.is_left_out(path)

    def list_sources(self, library: str) -> dict[str, _Source]:
        """Lists the modules of a library that have no bytecode, sorted."""
        listed = {}
        for path in sorted(self._sources):
            found = self._sources[path]
            source = self._sources.get(found) if isinstance(found, str) else found
            if path.startswith(f"{library}/") and path not in self._compiled and isinstance(source, _Source):
                listed[path] = source
        return listed


def _hash_sources(sources: Mapping[str, _Source]) -> str:
    rows = [[path, source.mode, hashlib.sha256(source.data).hexdigest()] for path, source in sources.items()]
    return hashlib.sha256(json.dumps(rows).encode("utf-8", "surrogateescape")).hexdigest() if rows else ""
