"""Chooses the versions and base digests that a new lock keeps from the previous one, if they still fit.

So a new package, or a newer imgtool, changes only those entries of the lock that must change. `--upgrade` takes newer
versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from training_imgtool.base.errors import UsageError
from training_imgtool.model.lock import Lock, LockedVariant


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """From the previous lock: each variant's versions by package, the bases' digests, and the commits by origin."""

    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)

    def versions(self, variant: str) -> Mapping[str, str]:
        """Returns a variant's versions; for a new variant, those in the first variant that contains the package."""
        if variant in self.variants:
            return self.variants[variant]
        return {name: version for pins in reversed(tuple(self.variants.values())) for name, version in pins.items()}


NOTHING_CARRIED_OVER = CarriedOver()


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a new lock resolves again: everything, packages with these normalised names, or the Debian packages.

    `bases` takes the bases' current digests into the lock, and changes nothing else but the Debian packages on them.
    """

    everything: bool = False
    packages: frozenset[str] = frozenset()
    debian: bool = False
    bases: bool = False

    def __bool__(self) -> bool:
        return self.everything or self.debian or self.bases or bool(self.packages)

    def carry_over(self, lock: Lock, platform: str) -> CarriedOver:
        """Selects the entries that a new lock for `platform` keeps. On another platform, bases have other digests.

        A new lock keeps no Debian packages, because Debian archives contain only the newest versions.

        Raises UsageError for a package that the lock does not contain.
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
