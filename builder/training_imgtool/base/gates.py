"""Refuses options and variables with empty values, because a script passes these when a shell variable is not set.

Some options and variables decide which servers, builders and signers imgtool trusts, and what it attaches to images. If
imgtool treated an empty value as not set, it would use a default that the user did not choose.
"""

from __future__ import annotations

from collections.abc import Mapping

from training_imgtool.base.errors import UsageError

GATES = ("IMGTOOL_ATTESTATIONS", "IMGTOOL_BUILDER", "IMGTOOL_CA_FILE", "IMGTOOL_MIRRORS", "IMGTOOL_REGISTRY")


def check_given(name: str, value: object) -> None:
    """Raises UsageError if the value of an option or an argument is blank, or is a list with a blank item."""
    items = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(item, str) and not item.strip() for item in items):
        raise UsageError(
            f"{name} is empty", hint="give it a value, or leave it out (a shell variable in the command may be unset)"
        )


def check_variables(environ: Mapping[str, str]) -> None:
    """Raises UsageError if a variable in GATES is empty; imgtool treats other empty variables as not set."""
    for name in GATES:
        if name in environ and not environ[name].strip():
            raise UsageError(
                f"{name} is empty", hint="give it a value, or unset it (a shell variable in the value may be unset)"
            )
