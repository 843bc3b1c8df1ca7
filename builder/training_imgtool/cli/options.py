"""The options that verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.spec.model import Role

Spec = Annotated[Path | None, typer.Argument(metavar="[SPEC]", help="An image.yaml, or the folder it lies in.")]
Roles = Annotated[list[Role] | None, typer.Option("--role", help="Only this role; may be given again.")]
Registry = Annotated[
    str | None,
    typer.Option(metavar="HOST/PATH", help="Where images go, instead of the spec's registry and IMGTOOL_REGISTRY."),
]
Locked = Annotated[bool, typer.Option("--locked", help="Fail unless the spec's lock exists and is current.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")]
ProgressMode = Annotated[
    str, typer.Option("--progress", metavar="MODE", help="auto, tty, plain, json or quiet; on stderr.")
]
EngineName = Annotated[str, typer.Option("--engine", metavar="NAME", help="auto, docker or direct.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", "-t", help="A further tag; with several roles, ROLE-TAG.")]
