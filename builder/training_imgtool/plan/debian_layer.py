"""Makes the layer with a stage's Debian packages once, and records it on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from imgtool_debian_layers import BaseSystem, layer_version
from training_imgtool.base.progress import Progress
from training_imgtool.base.settings import Settings
from training_imgtool.base.threads import SingleFlight
from training_imgtool.model.lock import LockedDebian
from training_imgtool.oci.direct import tree
from training_imgtool.oci.direct.debian_layer import OpenedLibraries
from training_imgtool.oci.layers import blobs
from training_imgtool.oci.layers.codecs import Compression, choose_codec
from training_imgtool.oci.layers.layer_cache import LayerCache, LayerRecord, Record, hash_fields
from training_imgtool.oci.layers.layers import MTIME, LayerSource
from training_imgtool.oci.layers.tar_writer import Item, write_tar
from training_imgtool.oci.layers.tarhead import Kind
from training_imgtool.plan.debian_packages import list_archives, make_items
from training_imgtool.plan.debian_store import PackageStore

_NAME = "debian packages"
_FIELD = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMaker:
    """Makes the layer with the locked packages for a base.

    Attributes:
        base_digest: the digest of the base.
        locked: the packages.
        platform: the platform of the image.
        read_system: reads the base; LayerMaker calls it only to make the layer.
        settings: the machine's settings; the cache contains the packages' files.
        progress: receives each download.
        cache: stores the layer and its record.
        compression: how to compress the layer.
    """

    base_digest: str
    locked: LockedDebian
    platform: str
    read_system: Callable[[], BaseSystem]
    settings: Settings
    progress: Progress
    cache: LayerCache
    compression: Compression
    _once: SingleFlight[Record] = field(default_factory=SingleFlight)

    def layer(self, history: str, opened: OpenedLibraries) -> LayerSource:
        """Makes the layer; raises what `make_items` and `PackageStore.fetch` raise."""
        record = self._record(opened).layers[0]
        return LayerSource(
            descriptor=record.blob,
            diff_id=record.diff_id,
            history=history,
            open=partial(self._open, record, opened),
        )

    def tree(self, opened: OpenedLibraries) -> tree.Node:
        """Lists the paths in the layer; raises as `layer` does."""
        claims = self._record(opened).claims or {}
        return tree.unpack(claims.get(_FIELD, ""))

    @property
    def _mtime(self) -> int:
        return self.settings.source_date_epoch or MTIME

    def _record(self, opened: OpenedLibraries) -> Record:
        return self._once.do(opened, lambda: self.cache.find(self._hash_inputs(opened)) or self._make(opened))

    def _make(self, opened: OpenedLibraries) -> Record:
        record = self._compress(opened)
        self.cache.keep(self._hash_inputs(opened), record)
        return record

    def _compress(self, opened: OpenedLibraries) -> Record:
        system, maker = self.read_system(), tree.TreeMaker()
        store = PackageStore(self.settings, list_archives(system, self.settings), self.progress)
        files = store.fetch(self.locked.packages)
        items = make_items(system, self.locked, files, self.platform, opened)
        tar = write_tar(_list_entries(items, maker), self._mtime)
        layer = blobs.keep(_NAME, self.cache, choose_codec(self.compression), tar)
        return Record((layer,), {_FIELD: tree.pack(tree.prune(maker.root))})

    def _open(self, record: LayerRecord, opened: OpenedLibraries) -> Iterator[bytes]:
        if not self.cache.has_blob(record.blob):
            compressed = self._compress(opened)
            if compressed.layers[0].blob != record.blob:
                self.cache.forget(self._hash_inputs(opened))
                raise blobs.remade_error(record.blob, "a library of this machine differs from the first maker's")
        return self.cache.read_blob(record.blob)

    def _hash_inputs(self, opened: OpenedLibraries) -> str:
        return hash_fields(
            {
                "kind": "debian",
                "version": layer_version(),
                "base": self.base_digest,
                "requested": self.locked.requested,
                "packages": [[package.name, package.version, package.sha256] for package in self.locked.packages],
                "opened": [opened.sonames, opened.path] if opened.sonames else [],
                "mtime": self._mtime,
                "codec": choose_codec(self.compression).name,
            }
        )


def _list_entries(items: Iterator[Item], maker: tree.TreeMaker) -> Iterator[Item]:
    """Yields the entries unchanged, and adds each entry to the maker's tree."""
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
