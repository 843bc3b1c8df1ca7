"""Opens what a verb gets from the machine that it runs on: settings, progress on stderr, clients of registries."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from training_imgtool.base.progress import Progress
from training_imgtool.base.settings import VARIABLES, Settings, find_unknown_variables, from_environment
from training_imgtool.cli.commands.prune import bound_cache
from training_imgtool.cli.output import emit_note
from training_imgtool.cli.progress import open_progress

if TYPE_CHECKING:
    from training_imgtool.oci.attest.cosign import Signatory
    from training_imgtool.oci.registry.connect import Machine


def settings(secrets: tuple[str, ...] = (), note: Callable[[str], None] = emit_note) -> Settings:
    """Reads the machine's settings from the environment and from `--secret`; raises UsageError for a wrong value.

    `note` receives a line for each unknown variable that begins with `IMGTOOL_`.
    """
    machine = from_environment(os.environ)
    for name in find_unknown_variables(os.environ):
        close = difflib.get_close_matches(name, VARIABLES, n=1)
        note(f"{name} is no variable of imgtool{f': did you mean {close[0]}?' if close else ''}")
    if not secrets:
        return machine
    from training_imgtool.model.secrets import parse_secret

    return replace(machine, secrets=tuple(map(parse_secret, secrets)))


def progress(mode: str) -> AbstractContextManager[Progress]:
    """Opens a progress view on stderr; raises UsageError for an unknown mode."""
    return open_progress(mode, sys.stderr, os.environ)


@contextmanager
def open_machine(mode: str, secrets: tuple[str, ...] = ()) -> Iterator[Machine]:
    """Opens what a verb works with: settings, a progress view on stderr, and clients of registries."""
    from training_imgtool.oci.registry.connect import Machine

    own = settings(secrets)
    with bound_cache(own.cache, own.cache_size), progress(mode) as view, Machine.open(own, view) as machine:
        yield machine


def signatory(name: str | None, issuer: str | None) -> Signatory | None:
    """Returns whose signatures to check, from the options --signature and --issuer; None if neither is given.

    Raises UsageError unless --signature names a key or an identity.
    """
    if name is None and issuer is None:
        return None
    from training_imgtool.oci.attest.cosign import Signatory

    found = Signatory(name=name or "", issuer=issuer)
    found.check()
    return found
