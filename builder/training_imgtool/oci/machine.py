"""What a whole run shares: the machine's settings, the progress, and the clients of registries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from training_imgtool.base.progress import Progress, silent
from training_imgtool.base.settings import Settings
from training_imgtool.oci.registry.connect import Registries


@dataclass(frozen=True, slots=True)
class Machine:
    """The values that a whole run shares: the machine's settings, the progress, and the clients of registries."""

    settings: Settings
    progress: Progress
    registries: Registries

    @classmethod
    def open(cls, settings: Settings, progress: Progress = silent) -> Self:
        """Returns a machine with new clients; sends no request."""
        return cls(settings, progress, Registries(settings, progress))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.registries.close()
