"""Builds images for several platforms, and an index that names them all.

imgtool makes the image for each platform as in a build for one platform. imgtool runs no foreign code, because the
direct builder only copies files and wheels. The tag of the index is `ROLE-KEY`; KEY is a hash of the keys of the
images.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import Any

from training_imgtool.base.errors import UsageError
from training_imgtool.base.progress import Event, Note, Outcome, Progress
from training_imgtool.base.reference import Digest, Repository
from training_imgtool.make.build import build, check_inputs
from training_imgtool.make.find import add_tag, find_results, name_results
from training_imgtool.make.request import BuildResult, BuildRun
from training_imgtool.model.spec import Role
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import Manifest, index_body, index_entry
from training_imgtool.plan.inputs import Inputs, RoleImage


def build_platforms(run: BuildRun) -> tuple[BuildResult, ...]:
    """Builds the images of a spec, and the indexes if the spec has several platforms.

    Raises UsageError for several platforms without a push, and what finding, building and pushing raise.
    """
    if not run.inputs.others:
        return build(run)
    if not run.options.push:
        platforms = ", ".join(run.inputs.spec_file.platforms)
        raise UsageError(
            f"an index of {platforms} needs a registry",
            hint="add --push, or build for one platform: --set platform=linux/amd64",
        )
    check_inputs(run)
    named = replace(run, inputs=run.inputs.named_by_index())
    results = dict(find_results(named))
    if missing := tuple(image for image in named.wanted if image.role not in results):
        results |= _make(run, missing)
    ordered = tuple(replace(results[image.role], key=run.inputs.index_key(image.role)) for image in named.wanted)
    name_results(named, ordered)
    return ordered


def _read_entry(registry: Registry, manifest: Manifest, repository: Repository) -> dict[str, Any]:
    return index_entry(manifest, json.loads(registry.read(repository, manifest.config)))


def _make(run: BuildRun, missing: tuple[RoleImage, ...]) -> dict[Role, BuildResult]:
    """Builds the images of every platform, and pushes their indexes."""
    roles = tuple(image.role for image in missing)
    options = replace(run.options, roles=roles, tags=())
    of_role: dict[Role, list[BuildResult]] = {role: [] for role in roles}
    for inputs in run.inputs.by_platform:
        view = replace(run.machine, progress=partial(_tell, run.machine.progress, inputs.spec.platform))
        for result in build(replace(run, inputs=inputs, options=options, machine=view)):
            of_role[result.role].append(result)
    made: dict[tuple[Digest | None, ...], BuildResult] = {}  # an index names digests, so these images need no tags
    indexes = {}
    for image in missing:
        digests = tuple(result.digest for result in of_role[image.role])
        if (same := made.get(digests)) and same.digest:
            add_tag(run.machine.registries, same.digest, image.registry_tag)
            indexes[image.role] = replace(same, role=image.role, tag=image.tag, seconds=0.0)
        else:
            indexes[image.role] = made[digests] = _put_index(image, of_role[image.role], run.machine.registries)
    return indexes


def _put_index(image: RoleImage, results: list[BuildResult], registries: Registries) -> BuildResult:
    repository = image.registry_tag.repository
    registry = registries.at(repository)
    entries = []
    for result in results:
        if result.digest is None:
            raise AssertionError(f"{image.role}: the builder pushed the image and reported no digest")
        entries.append(_read_entry(registry, registry.manifest(result.digest), repository))
    media_type, body = index_body(entries)
    digest = registry.put_manifest(image.registry_tag, media_type, body)
    built = any(result.outcome is Outcome.BUILT for result in results)
    outcome = Outcome.BUILT if built else Outcome.APPENDED
    made = BuildResult.for_image(image, outcome, repository.digest(digest))
    return replace(
        made,
        seconds=sum(result.seconds for result in results),
        blobs=reduce(or_, (dict(result.blobs) for result in results)) if all(one.blobs for one in results) else {},
        sent=frozenset[str]().union(*(result.sent for result in results)),
        parts=tuple(results),
    )


def pair_parts(inputs: Inputs, results: Iterable[BuildResult]) -> tuple[tuple[Inputs, BuildResult], ...]:
    """Pairs each image with the inputs of its platform; leaves out the images of an index that the run found."""
    if not inputs.others:
        return tuple((inputs, result) for result in results)
    return tuple(
        pair for result in results if result.parts for pair in zip(inputs.by_platform, result.parts, strict=True)
    )


def _tell(progress: Progress, platform: str, event: Event) -> None:
    """Passes an event on, with the platform added to its subject or text."""
    if isinstance(event, Note):
        progress(replace(event, text=f"{platform}: {event.text}"))
    else:
        progress(replace(event, subject=f"{event.subject} {platform}"))
