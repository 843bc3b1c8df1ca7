"""One image under examination: the plan beside the facts, and the makers of findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from training_imgtool.context.context import Context
from training_imgtool.core.sanitize import join_lines
from training_imgtool.direct.layers.tar_reader import FOLDER
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.plan import Variant
from training_imgtool.spec.model import ImageSpec
from training_imgtool.verify.compare import Comparison
from training_imgtool.verify.expected_files import CopiedFiles, find_copied_files
from training_imgtool.verify.facts import Facts, Fields, Finding, Status, read_env
from training_imgtool.verify.packages import find_installed
from training_imgtool.versions.closure import Package

_LONGEST = 300


@dataclass(frozen=True, kw_only=True)
class Case:
    """The image of one role."""

    image: RoleImage
    facts: Facts
    spec: ImageSpec
    context: Context

    @cached_property
    def copied(self) -> CopiedFiles:
        """The files that COPY puts into the image."""
        base = read_env((self.facts.base_config or {}).get("config") or {})
        return find_copied_files(self.image.dockerfile, self.context, base)

    @cached_property
    def compared(self) -> Comparison:
        """The paths of the image beside those that it must have."""
        lower = [self.facts.listings.get(number) for number, layer in enumerate(self.facts.layers) if not layer.own]
        base = {
            path: node.attributes
            for listing in lower
            for path, node in (listing.nodes if listing else {}).items()
            if node.kind == FOLDER and node.attributes is not None
        }
        return Comparison(tree=self.facts.tree, made=self.facts.expected, copied=self.copied, base=base)

    @property
    def variant(self) -> Variant:
        """What was resolved for the role."""
        return self.image.plan.locked.variant

    @cached_property
    def installed(self) -> tuple[Package, ...]:
        """The packages in the environment, as far as their metadata was seen."""
        return find_installed(self.facts.tree)

    @property
    def own_seen(self) -> bool:
        """Whether all that lies above the base was read."""
        own = [number for number, layer in enumerate(self.facts.layers) if layer.own]
        return self.facts.tree.complete or all(number in self.facts.listings for number in own)

    def run_part(self, part: str) -> Fields | None:
        """Returns a part of what the importing container printed, or None."""
        return self.facts.run.parts.get(part) if self.facts.run else None

    def ok(self, check: str, found: str, expected: str = "") -> Finding:
        """Reports what is as planned."""
        return self._finding(check, Status.OK, found, expected)

    def wrong(self, check: str, found: str, expected: str) -> Finding:
        """Reports what is not as planned."""
        return self._finding(check, Status.MISMATCH, found, expected)

    def differs(self, check: str, complaints: Sequence[str], expected: str) -> Finding:
        """Reports what is not as planned, for several reasons that `verify.ignore` can name one by one."""
        finding = self._finding(check, Status.MISMATCH, shorten(list(complaints)), expected)
        return replace(finding, complaints=tuple(complaints))

    def warn(self, check: str, found: str, expected: str) -> Finding:
        """Reports what is worth knowing, and no reason to fail."""
        return self._finding(check, Status.WARNING, found, expected)

    def unseen(self, check: str, why: str) -> Finding:
        """Returns a check that nobody could make, and why."""
        return self._finding(check, Status.UNSEEN, "", why)

    def unproven(self, check: str, found: str, why: str) -> Finding:
        """Returns a check that would have to be made, and what hinders it here."""
        return self._finding(check, Status.UNPROVEN, found, why)

    def _finding(self, check: str, status: Status, found: str, expected: str) -> Finding:
        """Sanitizes text from an image, which is foreign, into one line for a terminal."""
        found, expected = (join_lines(text, limit=_LONGEST) for text in (found, expected))
        return Finding(check=check, role=self.image.role, status=status, found=found, expected=expected)


def shorten(names: list[str], most: int = 5) -> str:
    """Joins the first few names, and says how many there are more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
