"""The interface through which the direct builder gets the layer of Debian packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from training_imgtool.oci.direct.tree import Node
from training_imgtool.oci.layers.layers import LayerSource


@dataclass(frozen=True, slots=True)
class OpenedLibraries:
    """The shared libraries that must load in the image after the installation, and the image's LD_LIBRARY_PATH."""

    sonames: tuple[str, ...] = ()
    path: str = ""


class DebianLayer(Protocol):
    """Makes the layer of the Debian packages that a variant of the lock pins."""

    def layer(self, history: str, opened: OpenedLibraries) -> LayerSource:
        """Makes the layer; raises NeedsEngineError if a library is missing, or if only an engine can make the layer."""

    def tree(self, opened: OpenedLibraries) -> Node:
        """Returns the tree of the layer's files; raises the same errors as `layer`."""
