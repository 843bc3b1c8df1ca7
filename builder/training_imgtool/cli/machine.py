"""Opens what a verb gets from the machine that it runs on: settings, progress on stderr, clients of registries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from training_imgtool.app.prune import bound_cache
from training_imgtool.base.progress import Progress
from training_imgtool.base.settings import Settings
from training_imgtool.cli.output import emit_note
from training_imgtool.cli.progress import open_progress

if TYPE_CHECKING:
    from training_imgtool.oci.machine import Machine


def settings(secrets: tuple[str, ...] = ()) -> Settings:
    """Reads the machine's settings from the environment and from `--secret`; raises UsageError for a wrong value."""
    from training_imgtool.app.machine import read_settings

    return read_settings(os.environ, emit_note, secrets)


def progress(mode: str) -> AbstractContextManager[Progress]:
    """Opens a progress view on stderr; raises UsageError for an unknown mode."""
    return open_progress(mode, sys.stderr, os.environ)


@contextmanager
def open_machine(mode: str, own: Settings | None = None) -> Iterator[Machine]:
    """Opens what a verb works with: `own` settings or those of the environment, progress on stderr, and clients."""
    from training_imgtool.oci.machine import Machine

    own = own or settings()
    with bound_cache(own.cache, own.cache_size), progress(mode) as view, Machine.open(own, view) as machine:
        yield machine
