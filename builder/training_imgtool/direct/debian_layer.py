"""The RUN that installs Debian packages: recognised here, its layer made by `debian/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.tree import Node
from training_imgtool.dockerfile import apt_step
from training_imgtool.dockerfile.parse import Instruction
from training_imgtool.plan import LockedVariant


@dataclass(frozen=True, slots=True)
class OpenedLibraries:
    """The libraries that a stage opens once its packages are there, and the LD_LIBRARY_PATH that it has."""

    sonames: tuple[str, ...] = ()
    path: str = ""


class DebianLayer(Protocol):
    """Makes the layer of a variant's locked Debian packages."""

    def layer(self, history: str, opened: OpenedLibraries) -> LayerSource:
        """Makes the layer; raises NeedsEngineError when a library is missing, or only an engine can make the layer."""

    def tree(self, opened: OpenedLibraries) -> Node:
        """Lists what the layer has where; raises as `layer` does."""


def is_apt_script(instruction: Instruction, locked: LockedVariant, libraries: tuple[str, ...]) -> bool:
    """Returns whether a RUN is, letter for letter, the script that installs the variant's locked Debian packages."""
    debian = locked.debian
    if debian is None or instruction.flags or instruction.heredocs or instruction.json:
        return False
    script = apt_step.install_script(locked.variant, debian.requested, libraries)
    return instruction.text == apt_step.instruction_text(script)
