"""Empty values: an option or a variable that somebody names and leaves empty, as a script does whose own is not set.

Some of them decide what counts as evidence, who made it and where it goes: empty, they would be open gates.
"""

from __future__ import annotations

from collections.abc import Mapping

from training_imgtool.base.errors import UsageError

GATES = ("IMGTOOL_ATTESTATIONS", "IMGTOOL_BUILDER", "IMGTOOL_CA_FILE", "IMGTOOL_MIRRORS", "IMGTOOL_REGISTRY")


def check_given(name: str, value: object) -> None:
    """Raises UsageError if an option or an argument is, or holds, an empty or blank text."""
    items = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(item, str) and not item.strip() for item in items):
        raise UsageError(f"{name} is empty", hint="is a variable of your script not set? Else leave it out")


def check_variables(environ: Mapping[str, str]) -> None:
    """Raises UsageError for a variable that is a gate and empty; others count as not set when they are."""
    for name in GATES:
        if name in environ and not environ[name].strip():
            raise UsageError(f"{name} is empty", hint="is a variable of your script not set? Else unset it")
