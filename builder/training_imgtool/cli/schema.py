"""`imgtool schema`: prints the JSON schema of image.yaml, for editors."""

from __future__ import annotations

import typer

from training_imgtool.cli.output import emit_json


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("schema")(schema)


def schema() -> None:
    """Print the JSON schema of image.yaml."""
    from training_imgtool.model.json_schema import json_schema

    emit_json(json_schema())
