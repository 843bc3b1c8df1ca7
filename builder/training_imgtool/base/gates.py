"""Refuses empty values of options and variables, which a script passes when one of its own variables is not set.

Some options and variables decide what imgtool accepts as evidence, who made it and where imgtool sends it. An empty
value would switch such a check off.
"""

from __future__ import annotations

from collections.abc import Mapping

from training_imgtool.base.errors import UsageError

GATES = ("IMGTOOL_ATTESTATIONS", "IMGTOOL_BUILDER", "IMGTOOL_CA_FILE", "IMGTOOL_MIRRORS", "IMGTOOL_REGISTRY")


def check_given(name: str, value: object) -> None:
    """Raises UsageError if an option's or argument's value is, or contains, an empty or blank text."""
    items = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(item, str) and not item.strip() for item in items):
        raise UsageError(f"{name} is empty", hint="set it (a variable of your script may be missing), or omit it")


def check_variables(environ: Mapping[str, str]) -> None:
    """Raises UsageError for an empty variable among the gates; imgtool treats other empty variables as not set."""
    for name in GATES:
        if name in environ and not environ[name].strip():
            raise UsageError(f"{name} is empty", hint="set it (a variable of your script may be missing), or unset it")
