"""The layer of a stage's Debian packages: made once, remembered here and in the registry."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.core.errors import VerificationError
from training_imgtool.core.threads import SingleFlight
from training_imgtool.debian.installation import Installation
from training_imgtool.debian.scripts import hash_table
from training_imgtool.direct import tree
from training_imgtool.direct.debian_layer import OpenedLibraries
from training_imgtool.direct.layers import blobs
from training_imgtool.direct.layers.codecs import Compression, choose_codec
from training_imgtool.direct.layers.layer_cache import LayerCache, LayerRecord, Record, hash_fields
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.layers.tar_writer import Item, write_tar
from training_imgtool.direct.layers.tarhead import Kind
from training_imgtool.plan import DebianPackage, LockedDebian

if TYPE_CHECKING:
    from training_imgtool.debian.base_system import BaseSystem
    from training_imgtool.debian.store import PackageStore

_VERSION = 2  # of how layers are made
_NAME = "debian packages"
_FIELD = "files"
_MOST_TREE = 16 << 20  # bytes of a listing as text


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMaker:
    """Makes the layer of locked packages on a base.

    Attributes:
        base_digest: of the base.
        locked: the packages.
        architecture: Debian's name of the platform's.
        read_system: reads the base; called only when the layer must be made.
        store: gives the packages' files.
        cache: keeps the layer and its record.
        compression: of the layer.
        mtime: of every entry, in seconds since 1970.
    """

    base_digest: str
    locked: LockedDebian
    architecture: str
    read_system: Callable[[], BaseSystem]
    store: PackageStore
    cache: LayerCache
    compression: Compression
    mtime: int
    _once: SingleFlight[Record] = field(default_factory=SingleFlight)

    def layer(self, history: str, opened: OpenedLibraries) -> LayerSource:
        """Makes the layer; raises what `Installation.make_items` and `PackageStore.fetch` raise."""
        record = self._record(opened).layers[0]
        return LayerSource(
            descriptor=record.blob,
            diff_id=record.diff_id,
            history=history,
            open=partial(self._open, record, opened),
        )

    def tree(self, opened: OpenedLibraries) -> tree.Node:
        """Lists what the layer has where; raises as `layer` does."""
        claims = self._record(opened).claims or {}
        try:
            text = zlib.decompressobj().decompress(base64.b64decode(claims.get(_FIELD, ""), validate=True), _MOST_TREE)
            return tree.parse(text.decode("ascii"))
        except (ValueError, binascii.Error, zlib.error) as error:
            raise VerificationError(f"the record of the layer {_NAME} is damaged: {error}") from error

    def _record(self, opened: OpenedLibraries) -> Record:
        return self._once.do(opened, lambda: self.cache.find(self._hash_inputs(opened)) or self._make(opened))

    def _make(self, opened: OpenedLibraries) -> Record:
        record = self._compress(opened)
        self.cache.keep(self._hash_inputs(opened), record)
        return record

    def _compress(self, opened: OpenedLibraries) -> Record:
        self.store.fetch(self.locked.packages)
        installation = Installation(
            self.read_system(), self.locked, _verify_files(self.store), self.architecture, opened=opened
        )
        maker = tree.TreeMaker()
        tar = write_tar(_list_entries(installation.make_items(), maker), self.mtime)
        layer = blobs.keep(_NAME, self.cache, choose_codec(self.compression), tar)
        text = zlib.compress(tree.dump(tree.prune(maker.root)).encode("ascii"))
        return Record((layer,), {_FIELD: base64.b64encode(text).decode()})

    def _open(self, record: LayerRecord, opened: OpenedLibraries) -> Iterator[bytes]:
        if not self.cache.has_blob(record.blob):
            compressed = self._compress(opened)
            if compressed.layers[0].blob != record.blob:
                self.cache.forget(self._hash_inputs(opened))
                raise blobs.remade_error(record.blob, "a library here differs from the one that made it first")
        return self.cache.read_blob(record.blob)

    def _hash_inputs(self, opened: OpenedLibraries) -> str:
        return hash_fields(
            {
                "kind": "debian",
                "version": _VERSION,
                "scripts": hash_table(),
                "base": self.base_digest,
                "requested": self.locked.requested,
                "packages": [[package.name, package.version, package.sha256] for package in self.locked.packages],
                "opened": [opened.sonames, opened.path] if opened.sonames else [],
                "mtime": self.mtime,
                "codec": choose_codec(self.compression).name,
            }
        )


def _verify_files(store: PackageStore) -> Callable[[DebianPackage], Path]:
    """Gives packages' files, each hashed once; raises VerificationError for one that is not the locked one."""
    verified: dict[str, Path] = {}

    def find_file(package: DebianPackage) -> Path:
        if package.sha256 not in verified:
            file = store.path(package)
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if digest != package.sha256:
                file.unlink(missing_ok=True)
                raise VerificationError(
                    f"{file}: damaged, removed", hint="run the command again: imgtool fetches it once more"
                )
            verified[package.sha256] = file
        return verified[package.sha256]

    return find_file


def _list_entries(items: Iterator[Item], maker: tree.TreeMaker) -> Iterator[Item]:
    """Passes entries on and lists them."""
    for item in items:
        entry = item.entry
        above, _, name = entry.path.rpartition("/")
        if name.startswith(".wh."):
            maker.add(f"{above}/{name.removeprefix('.wh.')}", tree.WHITEOUT)
        elif entry.kind is Kind.FOLDER:
            maker.add(entry.path, tree.make_folder(tree.Attributes(entry.mode, entry.uid, entry.gid)))
        elif entry.kind is Kind.LINK:
            maker.add(entry.path, tree.Node(tree.Kind.LINK, target=entry.target))
        else:
            maker.add(entry.path, tree.FILE)
        yield item
