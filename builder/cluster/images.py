"""The images that a run is made of: from the registry by digest, else the engine's own of the same key, else built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from builder import engine_road
from builder.errors import CredentialsError, RegistryRefusedError, TemporaryError
from builder.inputs import RoleImage
from builder.parallel import run_all
from builder.pipeline import find_images
from builder.progress import Done, Note, Outcome
from builder.reference import Digest, Repository
from builder.spec import Role
from builder.work import Work

if TYPE_CHECKING:
    from builder.engines import Engine
    from builder.registry.connect import Registries

_OWN = Repository("localhost", "imgtool/stage")  # what a job file would call an image that no registry has


@dataclass(frozen=True, slots=True, kw_only=True)
class RunImage:
    """One role's image in the engine.

    Attributes:
        reference: what the engine knows it by: its digest, or its ID.
        digest: what the job file would name.
        source: `registry`, `engine` or `built`.
    """

    reference: str
    digest: Digest
    source: str


def obtain(work: Work, engine: Engine) -> Mapping[Role, RunImage]:
    """Makes sure that the engine has the images of the work's roles.

    What the registry has is what will be submitted, so that comes first and is pulled when the engine lacks it.
    A registry that cannot be asked is said, and no reason not to run what the engine has.
    """
    images = _from_registry(work, engine) if work.inputs.plan.repository is not None else {}
    rest = tuple(image.role for image in work.wanted if image.role not in images)
    if rest:
        local = replace(work, options=replace(work.options, roles=rest, push=False, tags=()))
        for built in engine_road.build_locally(local, engine):
            source = "engine" if built.outcome is Outcome.FOUND else "built"
            image_id = built.image_id or ""
            images[built.role] = RunImage(reference=image_id, digest=_OWN.digest(image_id), source=source)
    return {image.role: images[image.role] for image in work.wanted}


def _from_registry(work: Work, engine: Engine) -> dict[Role, RunImage]:
    from builder.registry.connect import connect

    try:
        with connect(work.settings, work.progress) as registries:
            found = find_images(work.inputs, work.wanted, registries, work.progress)
            run_all(
                {
                    image.role: partial(_pull, work, engine, registries, image, digest)
                    for image in work.wanted
                    if (digest := found[image.role]) is not None
                }
            )
    except (RegistryRefusedError, CredentialsError, TemporaryError) as error:
        work.progress(Note(f"no image is taken from the registry: {error}"))
        return {}
    return {
        role: RunImage(reference=str(digest), digest=digest, source="registry")
        for role, digest in found.items()
        if digest is not None
    }


def _pull(work: Work, engine: Engine, registries: Registries, image: RoleImage, digest: Digest) -> None:
    login = registries.login(digest.repository.registry).login
    engine.pull_base(digest, image.plan.platform, login, work.progress)
    work.progress(Done(f"base {digest.repository.path}", Outcome.FOUND, "in the engine"))
