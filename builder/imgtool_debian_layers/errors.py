"""The errors of this package. The caller translates these errors into its own error classes."""

from __future__ import annotations


class DebianError(Exception):
    """Packages cannot become a layer: `message` tells why, `details` contains further lines."""

    def __init__(self, message: str, *, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class NeedsAptError(DebianError):
    """The installation may have an effect that imgtool does not know, so apt itself has to install the packages."""


class NoSolutionError(DebianError):
    """The archives lack a package, or have no versions of the packages that fit together."""


class DamagedError(DebianError):
    """A package file or the base's database is damaged, or a package file is not the expected package."""


class UnreachableError(DebianError):
    """An archive does not answer."""
