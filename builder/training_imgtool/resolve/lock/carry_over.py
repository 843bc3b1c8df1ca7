"""Chooses the versions and base digests that a new lock keeps from the previous one, if they still fit.

So a new package, or a newer imgtool, changes no more of the lock than it must. `--upgrade` takes newer versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from training_imgtool.base.errors import UsageError
from training_imgtool.model.plan import Lock, LockedVariant


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """Versions by package for each variant of the previous lock, digests by base, and commits by origin."""

    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)

    def versions(self, variant: str) -> Mapping[str, str]:
        """Returns the versions of a variant. A new variant gets them from the first variant that has the package."""
        if variant in self.variants:
            return self.variants[variant]
        return {name: version for pins in reversed(tuple(self.variants.values())) for name, version in pins.items()}


NOTHING_CARRIED_OVER = CarriedOver()


@dataclass(frozen=True, slots=True)
class Renewal:
    """The entries that a new lock resolves again: all, some packages by normalised name, or Debian packages."""

    everything: bool = False
    packages: frozenset[str] = frozenset()
    debian: bool = False

    def __bool__(self) -> bool:
        return self.everything or self.debian or bool(self.packages)

    def carry_over(self, lock: Lock, platform: str) -> CarriedOver:
        """Selects the entries that a new lock for `platform` keeps. Bases of another platform have other digests.

        It keeps no Debian packages, because an archive has only the newest versions.

        Raises UsageError for a package that the lock does not have.
        """
        debian = (package.name for row in lock.variants if row.debian for package in row.debian.packages)
        unknown = sorted(self.packages.difference(debian, *map(_packages, lock.variants)))
        if unknown:
            raise UsageError(
                f"the lock has no package {unknown[0]}, so there is nothing to upgrade",
                hint="to add a package, write it into the requirements file",
            )
        if self.everything:
            return NOTHING_CARRIED_OVER
        bases = {row.variant.base: row.base_digest for row in lock.variants} if lock.platform == platform else {}
        wheels = [wheel for row in lock.variants for wheel in row.wheels if wheel.name not in self.packages]
        commits = {wheel.source.origin: wheel.source.commit for wheel in wheels if wheel.source and wheel.source.commit}
        return CarriedOver({row.variant.name: self._versions(row) for row in lock.variants}, bases, commits)

    def _versions(self, locked: LockedVariant) -> dict[str, str]:
        return {name: version for name, version in _packages(locked).items() if name not in self.packages}


def _packages(locked: LockedVariant) -> dict[str, str]:
    return {wheel.name: wheel.version for wheel in (*locked.wheels, locked.installer)}
