"""Paths through symbolic links, as the kernel follows them inside an image."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from training_imgtool.base.errors import NeedsEngineError

_MOST_LINKS = 40  # Linux' MAXSYMLINKS


class DependsOnBaseError(NeedsEngineError):
    """Only what lies in the base makes this an engine's work: another base may do without."""


def follow_links(path: str, target_of: Callable[[str, bool], str | None]) -> str:
    """Follows the links of an absolute path; what is not there stays as it is.

    Args:
        path: the path.
        target_of: returns the target of the link at a path, or None if it is no link to follow; the flag says whether
            the path continues below it.

    Raises DependsOnBaseError for a loop, and what `target_of` raises.
    """
    left = [name for name in reversed(path.split("/")) if name]
    at, links = "/", 0
    while left:
        name = left.pop()
        if name in {".", ".."}:
            at = posixpath.dirname(at) if name == ".." else at
            continue
        inner = posixpath.join(at, name)
        target = target_of(inner, bool(left))
        if target is None:
            at = inner
            continue
        links += 1
        if links > _MOST_LINKS:
            raise DependsOnBaseError(f"{path}: too many links")
        left += [part for part in reversed(target.split("/")) if part]
        at = "/" if target.startswith("/") else at
    return at
