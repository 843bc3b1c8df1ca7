"""What a new lock takes over from the one before: versions and base digests, where they still fit.

So a package that is added, or a newer imgtool, changes no more than it must; who asks for newer versions gets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from training_imgtool.core.errors import UsageError
from training_imgtool.plan import Lock, LockedVariant


@dataclass(frozen=True, slots=True)
class Kept:
    """Versions by package for each variant that was there, and digests by base."""

    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)

    def versions(self, variant: str) -> Mapping[str, str]:
        """The versions of a variant; of one that is new, those that the others have, the first of them."""
        if variant in self.variants:
            return self.variants[variant]
        return {name: version for one in reversed(tuple(self.variants.values())) for name, version in one.items()}


NOTHING_KEPT = Kept()


@dataclass(frozen=True, slots=True)
class Renewal:
    """What is looked for anew although the lock has it: everything, or some packages by their normalised names."""

    everything: bool = False
    packages: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.packages)

    def kept(self, lock: Lock, platform: str) -> Kept:
        """What a new lock for `platform` takes over; the bases of another platform have other digests.

        Raises UsageError for a package that the lock does not have.
        """
        unknown = sorted(self.packages.difference(*map(_packages, lock.variants)))
        if unknown:
            raise UsageError(
                f"the lock has no package {unknown[0]}, so there is nothing to upgrade",
                hint="a package that is new goes into the requirements file",
            )
        if self.everything:
            return NOTHING_KEPT
        bases = {one.variant.base: one.base_digest for one in lock.variants} if lock.platform == platform else {}
        return Kept({one.variant.name: self._versions(one) for one in lock.variants}, bases)

    def _versions(self, locked: LockedVariant) -> dict[str, str]:
        return {name: version for name, version in _packages(locked).items() if name not in self.packages}


def _packages(locked: LockedVariant) -> dict[str, str]:
    return {wheel.name: wheel.version for wheel in (*locked.wheels, locked.installer)}
