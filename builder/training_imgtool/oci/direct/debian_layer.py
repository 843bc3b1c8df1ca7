"""The interface through which the direct builder gets the layer of Debian packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from training_imgtool.oci.direct.tree import Node
from training_imgtool.oci.layers.layers import LayerSource


@dataclass(frozen=True, slots=True)
class OpenedLibraries:
    """The libraries that a stage must be able to open after the installation, and the stage's LD_LIBRARY_PATH."""

    sonames: tuple[str, ...] = ()
    path: str = ""


class DebianLayer(Protocol):
    """Makes the layer of a variant's locked Debian packages."""

    def layer(self, history: str, opened: OpenedLibraries) -> LayerSource:
        """Makes the layer; raises NeedsEngineError when a library is missing, or only an engine can make the layer."""

    def tree(self, opened: OpenedLibraries) -> Node:
        """Returns the tree of the layer's files; raises what `layer` raises."""
