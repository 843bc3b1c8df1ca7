"""Finds the source of each secret that an engine mounts, and checks that each secret has a source and a use.

imgtool never writes a secret's value to a file. buildx gets the name of a file or of an environment variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from training_imgtool.base.errors import InputError
from training_imgtool.make.request import BuildRun
from training_imgtool.plan.inputs import Inputs, RoleImage

if TYPE_CHECKING:
    from training_imgtool.base.settings import SecretSource

_SHORTEST_HIDDEN = 6  # characters; hiding shorter words would hide ordinary ones
_ORDINARY_WORD = re.compile(r"[A-Za-z]?[a-z]{,8}\Z")  # such as `python` or `Training`


def check_unused(run: BuildRun) -> None:
    """Raises InputError for a secret, of the spec or the command line, that no shell line and no template can use."""
    spec_file, settings = run.inputs.spec_file, run.machine.settings
    spec, mounts = spec_file.spec, _mounts_secrets(run.inputs)
    for name, secret in spec.secrets.items():
        if not (secret.index or mounts):
            hint = "only lines of `run` and templates can mount secrets; remove this secret"
            raise InputError(f"secret {name}: nothing uses it", hint=hint)
    for given in settings.secrets:
        if given.id not in spec.secrets and not _has_template(run.inputs):
            declared = ", ".join(spec.secrets) or "none"
            hint = f"`secrets:` of the spec declares {declared}; leave out the option, or correct its id"
            raise InputError(f"secret {given.id}: nothing uses it", hint=hint)


def _has_template(inputs: Inputs) -> bool:
    return any(image.recipe.template for image in inputs.images)


def _mounts_secrets(inputs: Inputs) -> bool:
    return any(
        image.recipe.template or image.recipe.run.lines or image.recipe.run_after_packages.lines
        for image in inputs.images
    )


def check_given(run: BuildRun, images: Iterable[RoleImage]) -> None:
    """Raises InputError if the images run shell lines, which may mount secrets, and a secret has no source."""
    if any(image.recipe.run.lines or image.recipe.run_after_packages.lines for image in images):
        take_secrets(run)


def take_secrets(run: BuildRun) -> tuple[SecretSource, ...]:
    """Returns every secret that an engine can mount; raises InputError if a secret of the spec has no source."""
    from training_imgtool.model.secrets import secret_sources

    spec_file = run.inputs.spec_file
    sources = secret_sources(spec_file, run.machine.settings)
    for name, secret in spec_file.spec.secrets.items():
        if name not in sources and not secret.index:
            raise InputError(
                f"secret {name}: not given", hint=f"give --secret id={name},env=VARIABLE, or set env or src in the spec"
            )
    logins = {name for name, secret in spec_file.spec.secrets.items() if secret.index}
    return tuple(source for name, source in sources.items() if name not in logins)


def hidden_values(secrets: Iterable[SecretSource], environ: Mapping[str, str], text: str) -> tuple[str, ...]:
    """Returns the lines of the secrets' values, to be hidden in logs; raises InputError for a secret without a value.

    The result leaves out ordinary words, and lines that `text` contains. Replacing these by `***` would make the log
    unreadable and hide nothing.
    """
    from training_imgtool.base.settings import LARGEST_SECRET

    lines: set[str] = set()
    for secret in secrets:
        value = secret.read(environ)
        if value is None:
            limit = f"or is no file, or has more than {LARGEST_SECRET} bytes" if secret.file else "in the environment"
            raise InputError(f"secret {secret.id}: {secret.place} is not there, {limit}")
        lines |= {line.strip() for line in os.fsencode(value).decode(errors="replace").splitlines()}  # as logs are read
    hidden = (line for line in lines if len(line) >= _SHORTEST_HIDDEN and line not in text)
    return tuple(sorted((line for line in hidden if not _ORDINARY_WORD.match(line)), key=len, reverse=True))
