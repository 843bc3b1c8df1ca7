"""What layers are made with on this machine. A module of its own: most runs make no layers of wheels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from builder.direct.codecs import Compression
from builder.direct.context_layers import OnceEach
from builder.direct.layer_cache import LayerCache
from builder.direct.layers import MTIME, LayerSource
from builder.plan import Wheel
from builder.records import dataclass, field
from builder.registry.once import Once

if TYPE_CHECKING:
    from builder.direct.bytecode import Interpreter


def _unheard(source: object) -> None:
    """Takes no notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What layers are made with on this machine.

    Attributes:
        wheel_path: fetches a wheel if needed and says where it is; called from several threads.
        find_interpreter: a CPython of a minor version, or None.
        mtime: of every entry, in seconds since 1970.
        workers: how many cores to use.
        ready: told of each layer as soon as its digest is known, from several threads.
        expect: told once which wheels `wheel_path` will be asked for, first the one that every layer needs; others
            only if something was lost.
        contexts: the layers of files from the context that this run made.
    """

    cache: LayerCache
    wheel_path: Callable[[Wheel], Path]
    find_interpreter: Callable[[str], Interpreter | None]
    compression: Compression = Compression.SPLICE
    mtime: int = MTIME
    workers: int = 2
    ready: Callable[[LayerSource], None] = _unheard
    expect: Callable[[tuple[Wheel, ...]], None] = _unheard
    contexts: OnceEach = field(default_factory=Once)
