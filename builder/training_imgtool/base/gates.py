"""The gates: options and variables that decide what counts as evidence, who made it and where it goes.

A gate that somebody names and leaves empty, as a script does with a variable that is not set, would be a gate that is
open. So an empty or blank value of each is a usage error; an option that is left out, or a variable that is not set,
asks for nothing. Other variables count as not set when they are empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from training_imgtool.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate by its names; `value` is what it expects, for messages."""

    value: str
    option: str = ""
    variable: str = ""


GATES = (
    Gate("a public key, or an identity with --issuer URL", "--signature"),
    Gate("the URL of an OIDC provider", "--issuer"),
    Gate("a private key, as cosign takes it", "--key"),
    Gate("HOST/PATH", "--registry", "IMGTOOL_REGISTRY"),
    Gate("what builds or looks, such as auto or direct", "--engine"),
    Gate("a builder of buildx", "--builder", "IMGTOOL_BUILDER"),
    Gate("the roles' names", "--role"),
    Gate("id=ID,src=FILE", "--secret"),
    Gate("a tag", "--tag"),
    Gate("on or off", variable="IMGTOOL_ATTESTATIONS"),
    Gate("a PEM file", variable="IMGTOOL_CA_FILE"),
    Gate("HOST=HOST,…", variable="IMGTOOL_MIRRORS"),
)


def check_option(names: Collection[str], values: Iterable[object]) -> None:
    """Raises UsageError if an option is a gate, by one of its names, and one of its values is empty."""
    is_empty = any(isinstance(value, str) and not value.strip() for value in values)
    for gate in GATES if is_empty else ():
        if gate.option in names:
            raise _error(gate.option, gate)


def check_arguments(arguments: Mapping[str, object]) -> None:
    """Raises UsageError for an argument of the Python interface that is a gate and is, or holds, an empty text."""
    for gate in GATES:
        name = gate.option.removeprefix("--").replace("-", "_")
        for argument in {name, f"{name}s"} & arguments.keys():
            value = arguments[argument]
            items = (value,) if isinstance(value, str) else value if isinstance(value, Sequence) else ()
            if any(isinstance(item, str) and not item.strip() for item in items):
                raise _error(argument, gate)


def check_variables(environ: Mapping[str, str]) -> None:
    """Raises UsageError for a variable that is a gate and empty."""
    for gate in GATES:
        if gate.variable and not environ.get(gate.variable, gate.variable).strip():
            raise _error(gate.variable, gate)


def _error(name: str, gate: Gate) -> UsageError:
    what = "unset it" if name == gate.variable else "leave it out"
    return UsageError(
        f"{name} is empty: expected {gate.value}", hint=f"is a variable of your script not set? Else {what}"
    )
