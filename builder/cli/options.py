"""The options that verbs share, and the settings that they are read with."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.settings import Settings, from_environment
from builder.spec import Role

if TYPE_CHECKING:
    from builder.progress import Progress

Spec = Annotated[Path | None, typer.Argument(metavar="[SPEC]", help="An image.yaml, or the folder it lies in.")]
Roles = Annotated[list[Role] | None, typer.Option("--role", help="Only this role; may be given again.")]
Registry = Annotated[
    str | None,
    typer.Option(metavar="HOST/PATH", help="Where images go, instead of the spec's registry and IMGTOOL_REGISTRY."),
]
Locked = Annotated[bool, typer.Option("--locked", help="Refuse to write image.lock: it must be there and current.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")]
ProgressMode = Annotated[
    str, typer.Option("--progress", metavar="MODE", help="auto, tty, plain, json or quiet; on stderr.")
]
EngineName = Annotated[str, typer.Option("--engine", metavar="NAME", help="auto, docker or direct.")]


def settings() -> Settings:
    """The machine's settings; the only place that reads the environment for them."""
    return from_environment(os.environ)


def progress(mode: str) -> AbstractContextManager[Progress]:
    """A view of the given mode on stderr."""
    import sys

    from builder.cli.progress import open_progress

    return open_progress(mode, sys.stderr, os.environ)
