"""`imgtool schema`: prints the JSON schema of image.yaml, for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.cli.output import emit_json


def schema(
    output: Annotated[
        str | None, typer.Option(metavar="VERB", help="Print the schema of this verb's --json output instead.")
    ] = None,
) -> None:
    """Print the JSON schema of image.yaml."""
    from training_imgtool.model.json_schema import json_schema, output_schema

    emit_json(output_schema(output) if output else json_schema())
