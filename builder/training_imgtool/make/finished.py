"""Looks for credentials in the config of an image that an engine made from a Dockerfile template.

`model.recipe.printing` has checked the template's text. Only the engine knows the values of variables in the template,
and the config of the images in the template's FROM lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.reference import Digest
from training_imgtool.model.recipe.printing import find_secret, without_variables
from training_imgtool.oci.image.image import read_config
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.repository.stored_stages import StoredStages
from training_imgtool.plan.inputs import RoleImage


def check_finished(machine: Machine, image: RoleImage, made: Digest) -> None:
    """Raises VerificationError if the config or the history of a template's image contains a credential."""
    template, registry = image.recipe.template, machine.registries.at(made.repository)
    manifest = registry.manifest(made)
    if template is None or manifest.is_index:
        return
    found = dict(_find(read_config(registry.read(made.repository, manifest.config)), template.allowed))
    if found:
        stages = StoredStages(machine.registries, machine.settings.cache)
        base = stages.base(image.recipe.base, image.recipe.platform)
        found = {text: where for text, where in found.items() if text not in dict(_find(read_config(base.config), ()))}
    for where in found.values():
        raise VerificationError(
            f"{image.role}: the {where} of the pushed image, built from {template.name}, contains a credential",
            hint=f"change the credential, delete {image.registry_tag}, and mount a secret of the spec in RUN",
        )


def _find(document: Any, allowed: tuple[str, ...], where: str = "config") -> Iterator[tuple[str, str]]:
    """Yields each text of a config that contains a credential, and its place."""
    if isinstance(document, dict):
        for key, value in document.items():
            place = key if where == "config" else where
            if isinstance(value, str) and find_secret(without_variables(f"{key}={value}", allowed)):
                yield f"{key}={value}", place
            else:
                yield from _find(value, allowed, place)
    elif isinstance(document, list):
        whole = json.dumps(document) if all(isinstance(item, str) for item in document) else ""
        if whole and find_secret(without_variables(whole, allowed)):
            yield whole, where
        for item in document:
            yield from _find(item, allowed, where)
    elif isinstance(document, str) and find_secret(without_variables(document, allowed)):
        yield document, where
