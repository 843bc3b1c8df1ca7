"""Makes the layer that installing Debian packages with apt would make, but runs no script (README.md)."""

from imgtool_debian_layers.apt import resolve_packages
from imgtool_debian_layers.archives import list_archives
from imgtool_debian_layers.base_system import BaseSystem, LayerFile, Node, read_base, read_document
from imgtool_debian_layers.errors import DamagedError, DebianError, NeedsAptError, NoSolutionError, UnreachableError
from imgtool_debian_layers.layer import layer_version, make_layer
from imgtool_debian_layers.package_file import Package
from imgtool_debian_layers.unpack import Entry

__all__ = [
    "BaseSystem",
    "DamagedError",
    "DebianError",
    "Entry",
    "LayerFile",
    "NeedsAptError",
    "NoSolutionError",
    "Node",
    "Package",
    "UnreachableError",
    "layer_version",
    "list_archives",
    "make_layer",
    "read_base",
    "read_document",
    "resolve_packages",
]
