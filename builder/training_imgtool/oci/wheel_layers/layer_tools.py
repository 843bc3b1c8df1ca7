"""Defines the tools and settings for making layers, in a small module that runs without new wheels can load fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.threads import SingleFlight
from training_imgtool.model.lock import Wheel
from training_imgtool.oci.layers.codecs import Compression
from training_imgtool.oci.layers.context_layers import OnceEach
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.layers.layers import MTIME, LayerSource

if TYPE_CHECKING:
    from training_imgtool.base.interpreters import Interpreter


def _ignore(source: object) -> None:
    """Does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFiles:
    """The layers in which the standard library is.

    Attributes:
        digest: the digest of these layers together: that of the base, or of the layer with Debian's packages.
        layers: opens the layers one after the other, the highest first.
    """

    digest: str
    layers: Callable[[], Iterator[Iterable[bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTools:
    """The tools and settings for making layers on this machine.

    Attributes:
        wheel_path: fetches a wheel if needed and returns its path; called from several threads.
        find_interpreter: finds a CPython of a minor version, or returns None.
        release: the full version of the image's Python, if known. Compilers of patch releases may differ, so imgtool
            uses no layers that were made for another release.
        mtime: the time of every entry, in seconds since 1970.
        workers: the number of cores to use.
        ready: receives each layer as soon as it has a digest; several threads call it.
        expect: receives once the wheels for which `wheel_path` will be called, first the one that every layer needs.
            `wheel_path` is called for others only if the cache has lost a layer.
        contexts: the layers of context files that this run made.
        library: the base's layers; None if imgtool need not look for its standard library.
    """

    cache: LayerCache
    wheel_path: Callable[[Wheel], Path]
    find_interpreter: Callable[[str], Interpreter | None]
    release: str | None = None
    compression: Compression = Compression.GZIP
    mtime: int = MTIME
    workers: int = 2
    ready: Callable[[LayerSource], None] = _ignore
    expect: Callable[[tuple[Wheel, ...]], None] = _ignore
    contexts: OnceEach = field(default_factory=SingleFlight)
    library: LibraryFiles | None = None

    def require_interpreter(self, python: str) -> Interpreter:
        """Returns this machine's CPython of a minor version; raises NoInterpreterError if it has none."""
        interpreter = self.find_interpreter(python)
        if interpreter is None:
            from training_imgtool.base.interpreters import NoInterpreterError

            raise NoInterpreterError(
                f"this machine has no Python {python}, which imgtool needs to compile the bytecode of the images",
                hint=f"install Python {python} (uv python install {python}), or use an engine",
            )
        return interpreter
