"""What may go wrong. The caller translates these errors to its own."""

from __future__ import annotations


class DebianError(Exception):
    """Packages cannot become a layer: `message` says why, `details` has further lines."""

    def __init__(self, message: str, *, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class NeedsAptError(DebianError):
    """What the installation leaves behind is not known, so apt itself has to install the packages."""


class NoSolutionError(DebianError):
    """The archives have no such packages, or none that fit together."""


class DamagedError(DebianError):
    """A package or the base's database is not what its format or its name says."""


class UnreachableError(DebianError):
    """An archive does not answer."""
