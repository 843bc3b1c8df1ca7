"""The secrets of `RUN --mount=type=secret`: where each comes from, and whether every id has a place and a use.

A value never enters a text that imgtool writes: programs get the name of a file or of an environment variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from training_imgtool.core.errors import InputError
from training_imgtool.dockerfile.mounts import list_mounts, list_secrets, needed_stages
from training_imgtool.dockerfile.parse import Dockerfile, Stage
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.request import BuildRun

if TYPE_CHECKING:
    from training_imgtool.core.settings import SecretSource

_SHORTEST_HIDDEN = 6  # characters; hiding shorter words would hide ordinary ones
_ORDINARY_WORD = re.compile(r"[A-Za-z]?[a-z]{,8}\Z")  # such as `python` or `Training`


def check_unused(run: BuildRun) -> None:
    """Raises InputError for a secret of the spec or the command line that no template mounts."""
    spec, mounted = run.inputs.spec_file.spec, _find_mounted_ids(run.inputs)
    logins = {name for name, secret in spec.secrets.items() if secret.index}
    for name in dict.fromkeys([*spec.secrets, *(secret.id for secret in run.settings.secrets)]):
        if name not in mounted | logins:
            mounts = f"the templates mount {', '.join(sorted(mounted))}" if mounted else "no template mounts a secret"
            raise InputError(f"secret {name}: nothing uses it", hint=f"{mounts}; leave it out or correct its id")


def _find_mounted_ids(inputs: Inputs) -> set[str]:
    """Finds the ids of the secrets that a spec's templates mount."""
    stages = [stage for image in inputs.images for stage in image.dockerfile.stages]
    return {mount.id for stage in stages for step in stage.instructions for mount in list_secrets(step)}


def check_given(run: BuildRun, images: Iterable[RoleImage]) -> None:
    """Raises InputError for a secret that the images' stages mount and that has no place."""
    from training_imgtool.spec.secrets import secret_sources

    sources = secret_sources(run.inputs.spec_file, run.settings)
    for image in images:
        for stage in needed_stages(image.dockerfile, image.dockerfile.stages[-1]):
            take_secrets(image.dockerfile, stage, sources)


def take_secrets(dockerfile: Dockerfile, stage: Stage, sources: Mapping[str, SecretSource]) -> tuple[SecretSource, ...]:
    """Returns the secrets that a stage mounts, each once.

    Raises InputError for one that has no place and is not optional, and for an SSH agent, which nobody passes on.
    """
    taken = {}
    for instruction in stage.instructions:
        if any(mount.kind == "ssh" for mount in list_mounts(instruction)):
            raise InputError(
                f"{dockerfile.file}:{instruction.line}: RUN --mount=type=ssh: imgtool passes no SSH agent on",
                hint="mount a key instead: RUN --mount=type=secret,id=key,target=/root/.ssh/id_ed25519,mode=0600",
            )
        for mount in list_secrets(instruction):
            if mount.id in sources:
                taken[mount.id] = sources[mount.id]
            elif not mount.optional:
                declared = ", ".join(sorted(sources)) or "none"
                raise InputError(
                    f"{dockerfile.file}:{instruction.line}: RUN --mount=type=secret: no secret {mount.id!r} is "
                    f"given (given: {declared})",
                    hint=f"--secret id={mount.id},env=VARIABLE, or `secrets:` in the spec",
                )
    return tuple(taken.values())


def hidden_values(secrets: Iterable[SecretSource], environ: Mapping[str, str], text: str) -> tuple[str, ...]:
    """Returns the lines of the secrets, which no log may show; raises InputError for a secret that is not there.

    Ordinary words and what the stage's own `text` contains are left out: `***` in their place would make the log
    unreadable and hide nothing.
    """
    from training_imgtool.core.settings import LARGEST_SECRET

    lines: set[str] = set()
    for secret in secrets:
        value = secret.read(environ)
        if value is None:
            limit = f"or is no file, or has more than {LARGEST_SECRET} bytes" if secret.file else "in the environment"
            raise InputError(f"secret {secret.id}: {secret.place} is not there, {limit}")
        lines |= {line.strip() for line in os.fsencode(value).decode(errors="replace").splitlines()}  # as logs are read
    hidden = (line for line in lines if len(line) >= _SHORTEST_HIDDEN and line not in text)
    return tuple(sorted((line for line in hidden if not _ORDINARY_WORD.match(line)), key=len, reverse=True))
