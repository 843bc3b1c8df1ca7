"""The findings of `verify` about an image."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from training_imgtool.base.errors import UsageError
from training_imgtool.base.reference import Digest
from training_imgtool.base.sanitize import join_lines
from training_imgtool.model.spec import Role

_LONGEST = 300


class Status(StrEnum):
    """The result of a check."""

    OK = "ok"
    MISMATCH = "MISMATCH"
    UNPROVEN = "NOT PROVEN"
    ACCEPTED = "accepted"


class Accepted(StrEnum):
    """Kinds of findings that this machine cannot prove and that `--accept` lets pass."""

    BYTECODE = "bytecode"
    ENGINE = "engine"
    GONE = "gone"
    ATTACHED = "attached"
    VERSION = "version"


def read_accepted(words: Collection[str]) -> frozenset[Accepted]:
    """Reads the words of `--accept`; raises UsageError for an unknown word."""
    for word in words:
        if word not in list(Accepted):
            raise UsageError(f"--accept {word}: expected {', '.join(Accepted)}")
    return frozenset(map(Accepted, words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report.

    Attributes:
        check: the check's name, as in docs/verify.md.
        status: the check's result.
        found: what the registry has, or why the check is not possible.
        expected: what the registry should have; empty if `found` says enough.
        accepted_as: the word of `--accept` that lets the finding pass; None if no word does.
    """

    check: str
    status: Status
    found: str
    expected: str = ""
    accepted_as: Accepted | None = None


def ok(check: str, found: str) -> Finding:
    """Returns a finding for a passed check."""
    return _make(check, Status.OK, found, "")


def mismatch(check: str, found: str, expected: str) -> Finding:
    """Returns a finding for a failed check."""
    return _make(check, Status.MISMATCH, found, expected)


def unproven(check: str, why: str, accepted_as: Accepted | None = None) -> Finding:
    """Returns a finding for a check whose result this machine cannot prove."""
    return _make(check, Status.UNPROVEN, why, "", accepted_as)


def _make(check: str, status: Status, found: str, expected: str, accepted_as: Accepted | None = None) -> Finding:
    """Makes a finding whose texts are safe for a terminal, since a registry may have written them."""
    return Finding(
        check=check,
        status=status,
        found=join_lines(found, limit=_LONGEST),
        expected=join_lines(expected, limit=_LONGEST),
        accepted_as=accepted_as,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReport:
    """One role's image with all findings about it, and the index that names the image, if there is one."""

    role: Role
    image: Digest
    findings: tuple[Finding, ...]
    index: Digest | None = None
