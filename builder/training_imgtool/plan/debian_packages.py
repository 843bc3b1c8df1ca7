"""The adapter for `imgtool_debian_layers`, which translates its types and errors into imgtool's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import imgtool_debian_layers as debian
from imgtool_debian_layers import BaseSystem, LayerFile, Node, Package
from training_imgtool.base.elf import read_library
from training_imgtool.base.errors import (
    InputError,
    LocalFileError,
    NeedsEngineError,
    TemporaryError,
    VerificationError,
)
from training_imgtool.base.image_limits import find_path_fault
from training_imgtool.base.json_cache import make_file_name, read_cached, write_cached
from training_imgtool.base.settings import Settings
from training_imgtool.model.lock import DebianPackage, LockedDebian
from training_imgtool.oci.direct.debian_layer import OpenedLibraries
from training_imgtool.oci.layers.codecs import decompress
from training_imgtool.oci.layers.tar_reader import FOLDER, HARD_LINK, LINK, TarReader
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind
from training_imgtool.oci.registry.manifests import Descriptor

_FORMAT = "1"  # of a base's listing and texts in the cache
_MOST_BYTES = 256 << 20  # of this listing
_VENV = "opt/venv/"  # the next stage makes this folder
_NODE_KINDS = {FOLDER: "d", LINK: "l", HARD_LINK: "h"}
_ENTRY_KINDS = {"d": Kind.FOLDER, "l": Kind.LINK, "h": Kind.HARD_LINK, "f": Kind.FILE, "w": Kind.FILE}

Read = Callable[[Descriptor], Iterator[bytes]]
"""Yields a layer's blocks, and verifies the layer after the last block."""


def read_system(
    layers: tuple[Descriptor, ...], read: Read, settings: Settings, *, use_cache: bool = True
) -> BaseSystem:
    """Reads the Debian system of a base from its layers, or from the cache.

    Raises VerificationError for a damaged layer, NeedsEngineError for a layer that only an engine can read, and what
    `read` raises.
    """
    path = settings.cache / "debian" / make_file_name(" ".join((_FORMAT, *(layer.digest for layer in layers))))
    document = read_cached(path, _MOST_BYTES) if use_cache else None
    if document is not None:
        return debian.read_document(document)
    with _translate_errors():
        system = debian.read_base(_list_files(layer, read) for layer in layers)
    write_cached(path, system.document(), _MOST_BYTES)
    return system


def resolve_packages(
    system: BaseSystem, requested: tuple[str, ...], platform: str, settings: Settings
) -> tuple[DebianPackage, ...]:
    """Lists the packages that apt would install on a base, in apt's order.

    Raises:
        NeedsEngineError: this machine has no apt, or apt would remove a package.
        InputError: apt finds no solution; `details` contains apt's last lines.
        TemporaryError: an archive does not answer.
    """
    environ, mirrors = settings.environ, settings.debian_mirrors
    with _translate_errors():
        packages = debian.resolve_packages(
            system, requested, _name_architecture(platform), environ=environ, mirrors=mirrors
        )
    return tuple(DebianPackage(**asdict(package)) for package in packages)


def list_archives(system: BaseSystem, settings: Settings) -> tuple[str, ...]:
    """Lists the URLs of the package archives that a base names, or of their mirrors."""
    return debian.list_archives(system, settings.debian_mirrors)


def make_items(
    system: BaseSystem, locked: LockedDebian, files: Iterable[Path], platform: str, opened: OpenedLibraries
) -> Iterator[Item]:
    """Yields the entries of the layer with the locked packages; `files` are the packages' files, in the lock's order.

    Raises NeedsEngineError for a script, a trigger or a file whose effect is not known, VerificationError for a damaged
    package, LocalFileError for a package that cannot be read.
    """
    packages = [(Package(**asdict(package)), file) for package, file in zip(locked.packages, files, strict=True)]
    with _translate_errors():
        for entry in debian.make_layer(
            system,
            packages,
            locked.requested,
            _name_architecture(platform),
            _read_library,
            sonames=opened.sonames,
            library_path=opened.path,
        ):
            yield _make_item(entry)


def _name_architecture(platform: str) -> str:
    return platform.removeprefix("linux/")  # Debian uses the same names for the processors that imgtool supports


def _make_item(made: debian.Entry) -> Item:
    path, node, data = made
    if path.startswith(_VENV):
        raise NeedsEngineError(f"a package has /{path}")
    if node.kind != "w" and (fault := find_path_fault(path)):
        raise InputError(f"a Debian package has the path /{path[:80]}: {fault}")
    kind, owner = _ENTRY_KINDS[node.kind], {"uid": node.uid, "gid": node.gid}
    return Item(Entry(path=path, kind=kind, mode=node.mode, size=len(data), target=node.target, **owner), data)


def _read_library(data: bytes) -> tuple[str, int] | None:
    library = read_library(lambda at, size: data[at : at + size])
    return (library.soname, library.machine) if library else None


def _list_files(layer: Descriptor, read: Read) -> Iterator[LayerFile]:
    reader = TarReader(decompress(read(layer)))
    try:
        for member in reader.members():
            kind, own = _NODE_KINDS.get(member.kind, "f"), member.attributes
            node = Node(kind, own.mode, own.uid, own.gid, member.target if kind in "lh" else "")
            yield LayerFile(member.path, node, member.size, lambda: b"".join(reader.content()))
    except VerificationError as error:
        raise VerificationError(f"layer {layer.short} of the base: {error.message}", hint=error.hint) from error


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except debian.NeedsAptError as error:
        raise NeedsEngineError(error.message) from error
    except debian.NoSolutionError as error:
        hint = "system_packages takes names of packages that the base's own archives have"
        raise InputError(error.message, hint=hint, details=error.details) from error
    except debian.DamagedError as error:
        raise VerificationError(error.message) from error
    except debian.UnreachableError as error:
        hint = "IMGTOOL_DEBIAN_MIRRORS names mirrors of archives, HTTP_PROXY a proxy"
        raise TemporaryError(error.message, hint=hint, details=error.details) from error
    except OSError as error:
        raise LocalFileError(f"{error.filename}: cannot be read or run: {error.strerror}") from error
