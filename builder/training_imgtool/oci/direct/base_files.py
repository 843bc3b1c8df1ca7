"""Finds the files of a base image: in data for the bases of the version matrix, else by reading the layers once.

The cache on this machine stores the tree of each layer under the layer's digest, and the combined tree of a base's
layers under their digests. Each machine reads the layers itself: whoever could write such a tree for another machine
could move the code of its images.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.reference import DOCKER_HUB
from training_imgtool.oci.direct import tree
from training_imgtool.oci.direct.files import Files, call_once
from training_imgtool.oci.direct.tree import FILE, UNKNOWN, Attributes, Node, make_folder
from training_imgtool.oci.layers.codecs import decompress
from training_imgtool.oci.layers.layer_cache import LayerCache, Record, hash_fields
from training_imgtool.oci.layers.tar_reader import read_layer_tree
from training_imgtool.oci.registry.manifests import Descriptor

_VERSION = 1  # of the format of trees
_FIELD = "files"

# The facts come from base-files (Debian 10 to 13, Ubuntu 18.04 to 24.04), Docker's `python` images and NVIDIA's `cuda`
# images. tests/integration/test_base_files.py compares them with each such image that the machine can read.
_IMAGES = re.compile(
    rf"{re.escape(DOCKER_HUB)}/"
    r"(?:library/(?:python:[\d.]+-slim-[a-z]+|debian:[\w.-]+|ubuntu:[\w.-]+)|nvidia/cuda:[\w.-]+-ubuntu[\d.]+)\Z"
)
_LISTED_NOWHERE = "boot home media mnt usr var"  # folders of root with mode 755
_FOLDERS_OR_LINKS = "bin dev lib lib32 lib64 libx32 proc run sbin sys"
_NVIDIA = "NGC-DL-CONTAINER-LICENSE cuda-keyring_1.0-1_all.deb cuda-keyring_1.1-1_all.deb"

Read = Callable[[Descriptor], Iterator[bytes]]
"""Yields a layer's blocks and verifies them after the last one."""
DiffIds = Callable[[], tuple[str, ...]]
Layers = Callable[[], tuple[Descriptor, ...]]
"""Returns layers, lowest first; called only if imgtool must read them."""


class BaseReader:
    """Finds the files of bases. Safe for threads.

    Args:
        cache: keeps the trees of bases and of single layers.
    """

    def __init__(self, cache: LayerCache) -> None:
        self._cache = cache

    def files(self, name: str | None, layers: Layers, read: Read, diff_ids: DiffIds = tuple) -> Files:
        """Returns the files of a base.

        imgtool compares each layer that it reads with the base's config, because engines refuse a base whose layers
        have other contents than the config names.

        Args:
            name: the base's canonical REPOSITORY:TAG, or None.
            layers: the base's layers.
            read: opens one of the layers.
            diff_ids: the digests of the layers' uncompressed contents, from the base's config.
        """
        facts = find_matrix_tree(name) if name else None
        listed = call_once(lambda: self._read_tree(layers(), read, diff_ids))
        return Files((lambda: facts, listed) if facts else (listed,))

    def files_on_top(self, base: Files, layers: Layers, read: Read) -> Files:
        """Returns the files of an image whose further layers are those of a stage in a registry."""
        added = call_once(lambda: self._read_tree(layers(), read))
        return base.with_layer(added)

    def _read_tree(self, layers: tuple[Descriptor, ...], read: Read, diff_ids: DiffIds = tuple) -> Node:
        """Returns the combined tree of layers; passes on the errors of reading these layers."""
        digests = tuple(layer.digest for layer in layers)
        key = hash_fields({"kind": "base", "version": _VERSION, "layers": digests})
        whole = _find(self._cache, key)
        if whole is None:
            contents = dict(zip(digests, diff_ids(), strict=False))
            trees = (self._read_layer(layer, read, contents.get(layer.digest)) for layer in layers)
            whole = tree.prune(functools.reduce(tree.merge, trees, tree.make_folder()))
            _keep(self._cache, key, whole)
        return whole

    def _read_layer(self, layer: Descriptor, read: Read, diff_id: str | None) -> Node:
        key = hash_fields({"kind": "files", "version": _VERSION, "layer": layer.digest})
        present = _find(self._cache, key)
        if present is None:
            try:
                present = read_layer_tree(_check_blocks(decompress(read(layer)), diff_id))
            except VerificationError as error:
                raise VerificationError(
                    f"layer {layer.short} of the base: {error.message}",
                    hint=error.hint or "no engine unpacks such a layer: name another base, or push this one again",
                ) from error
            _keep(self._cache, key, present)
        return present


def find_matrix_tree(base: str) -> Node | None:
    """Returns the known file tree of a base (REPOSITORY:TAG) if the version matrix contains the base, else None."""
    if not _IMAGES.match(base):
        return None
    cuda = "/nvidia/" in base
    children = {name: make_folder(closed=True) for name in _LISTED_NOWHERE.split()}
    children |= dict.fromkeys(f"{_FOLDERS_OR_LINKS} {_NVIDIA if cuda else ''}".split(), UNKNOWN)
    children["etc"] = make_folder(closed=True, children={"passwd": FILE, "group": FILE})
    children["opt"] = make_folder(children={"nvidia": UNKNOWN} if cuda else None)
    children["root"] = make_folder(Attributes(0o700), closed=True)
    children["srv"] = make_folder()
    children["tmp"] = make_folder(Attributes(0o1777), closed=True)
    return make_folder(children=children)


def _check_blocks(blocks: Iterable[bytes], diff_id: str | None) -> Iterator[bytes]:
    """Yields the blocks; raises VerificationError at the end if their digest is not the given `diff_id`."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
        yield block
    content = f"sha256:{digest.hexdigest()}"
    if diff_id not in {None, content}:
        raise VerificationError(
            f"the content has the digest {content[:19]}, but the base's config names {str(diff_id)[:19]}"
        )


def _find(cache: LayerCache, key: str) -> Node | None:
    record = cache.find(key)
    claims: Mapping[str, str] = record.claims or {} if record else {}
    if _FIELD not in claims:
        return None
    try:
        return tree.unpack(claims[_FIELD])
    except VerificationError:
        cache.forget(key)
        return None


def _keep(cache: LayerCache, key: str, node: Node) -> None:
    cache.keep(key, Record((), {_FIELD: tree.pack(node)}))
