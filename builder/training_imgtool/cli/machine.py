"""What a verb needs of the machine it runs on: its settings, and a view of the progress on stderr."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from training_imgtool.core.settings import Settings, from_environment

if TYPE_CHECKING:
    from training_imgtool.core.progress import Progress


def settings() -> Settings:
    """The machine's settings; the only place that reads the environment for them."""
    return from_environment(os.environ)


def progress(mode: str) -> AbstractContextManager[Progress]:
    """A view of the given mode on stderr."""
    import sys

    from training_imgtool.cli.progress import open_progress

    return open_progress(mode, sys.stderr, os.environ)
