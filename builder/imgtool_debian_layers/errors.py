"""The errors of this package. The caller translates them into its own."""

from __future__ import annotations


class DebianError(Exception):
    """Packages cannot become a layer: `message` says why, `details` has further lines."""

    def __init__(self, message: str, *, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class NeedsAptError(DebianError):
    """The installation may have an effect that imgtool does not know, so apt itself has to install the packages."""


class NoSolutionError(DebianError):
    """The archives have no such packages, or none that fit together."""


class DamagedError(DebianError):
    """A package or the base's database does not match its format or its name."""


class UnreachableError(DebianError):
    """An archive does not answer."""
