"""Finds where the secrets of a spec are stored. Some of these secrets are logins of package indexes."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

from training_imgtool.base.errors import UsageError
from training_imgtool.base.settings import SecretSource, Settings
from training_imgtool.model.load import SpecFile

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_NAMES = frozenset({"env", "id", "src", "type"})
_EXPECTED = "expected id=ID,src=FILE or id=ID,env=VARIABLE"
_TOKEN_USER = "__token__"  # noqa: S105 - the user name that indexes expect with a token


def parse_secret(text: str) -> SecretSource:
    """Reads `id=ID,src=FILE` or `id=ID,env=VARIABLE`, as buildx does; raises UsageError, which never shows a value.

    With `type=env`, `src` names a variable. The function refuses a pipe, such as `src=<(program)`: only one reader can
    read a pipe, and imgtool too reads the value, to hide it in logs.
    """
    fields: dict[str, str] = {}
    for part in next(csv.reader([text]), []):
        key, equals, value = part.partition("=")
        name = {"source": "src"}.get(key.lower(), key.lower())
        if not equals or not value or name not in _NAMES or name in fields:
            raise UsageError(f"--secret: {_EXPECTED}", hint="never write the secret on the command line")
        fields[name] = value
    if fields.pop("type", "file") == "env" and "env" not in fields and "src" in fields:
        fields["env"] = fields.pop("src")
    file = fields.get("src")
    if "id" not in fields or (file is None) == ("env" not in fields):
        raise UsageError(f"--secret: {_EXPECTED}")
    if not _ID.match(fields["id"]):
        raise UsageError("--secret: an id may contain only letters, digits, '.', '_' and '-', a letter or digit first")
    place = Path(file).expanduser().absolute() if file else None
    if place is not None and place.exists() and not place.is_file():
        raise UsageError(
            f"--secret id={fields['id']}: {place} is not a regular file",
            hint=f'for the output of a program: export VARIABLE="$(program)", --secret id={fields["id"]},env=VARIABLE',
        )
    return SecretSource(id=fields["id"], env=fields.get("env"), file=place)


def secret_sources(spec_file: SpecFile, settings: Settings) -> dict[str, SecretSource]:
    """Returns where each secret is stored, by the secret's id. --secret replaces the place that the spec names."""
    sources = {}
    for name, secret in spec_file.spec.secrets.items():
        file = (spec_file.folder / Path(secret.src).expanduser()).absolute() if secret.src else None
        if secret.env or file:
            sources[name] = SecretSource(id=name, env=secret.env, file=file)
    return {**sources, **{secret.id: secret for secret in settings.secrets}}


def with_index_logins(spec_file: SpecFile, settings: Settings) -> Settings:
    """Adds to the settings a login for each package index for which the spec has a secret with a value."""
    sources, logins = secret_sources(spec_file, settings), {}
    for name, secret in spec_file.spec.secrets.items():
        value = sources[name].read(settings.environ) if secret.index and name in sources else None
        if not secret.index or value is None:
            continue
        user, colon, password = value.strip().partition(":")
        prefix = f"UV_INDEX_{re.sub(r'[^A-Za-z0-9]', '_', secret.index).upper()}"
        logins[f"{prefix}_USERNAME"] = user if colon else _TOKEN_USER
        logins[f"{prefix}_PASSWORD"] = password if colon else user
    return replace(settings, environ={**settings.environ, **logins}) if logins else settings
