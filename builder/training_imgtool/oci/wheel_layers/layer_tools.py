"""What layers are made with on this machine. A module of its own: most runs make no layers of wheels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.threads import SingleFlight
from training_imgtool.model.plan import Wheel
from training_imgtool.oci.layers.codecs import Compression
from training_imgtool.oci.layers.context_layers import OnceEach
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.layers.layers import MTIME, LayerSource

if TYPE_CHECKING:
    from training_imgtool.base.interpreters import Interpreter


def _ignore(source: object) -> None:
    """Takes no notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTools:
    """What layers are made with on this machine.

    Attributes:
        wheel_path: fetches a wheel if needed and says where it is; called from several threads.
        find_interpreter: a CPython of a minor version, or None.
        release: the full version of the image's Python, where known: its compiler may differ from another patch's, so
            layers that were made for another release are not taken.
        mtime: of every entry, in seconds since 1970.
        workers: how many cores to use.
        ready: takes each layer as soon as it has a digest; several threads call it.
        expect: takes, once, the wheels that `wheel_path` will be called for, first the one that every layer needs;
            others only if something was lost.
        contexts: the layers of files from the context that this run made.
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
