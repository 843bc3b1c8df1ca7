"""Gets the images of a run: from the registry by digest, else the engine's own of the same key, else built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.core.errors import CredentialsError, RegistryRefusedError, TemporaryError
from training_imgtool.core.progress import Done, Note, Outcome
from training_imgtool.core.reference import Digest, Repository
from training_imgtool.core.threads import run_all
from training_imgtool.pipeline.build import build_in_engine
from training_imgtool.pipeline.engine.engines import pull_parents
from training_imgtool.pipeline.engine.pull import pull_image
from training_imgtool.pipeline.find import find_images, head
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.pipeline.request import BuildRun
from training_imgtool.spec.model import Role

if TYPE_CHECKING:
    from training_imgtool.engines import Engine
    from training_imgtool.registry.connect import Registries

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


def obtain(work: BuildRun, engine: Engine) -> Mapping[Role, RunImage]:
    """Makes sure that the engine has the images of the work's roles.

    What the registry has is what will be submitted, so that comes first and is pulled when the engine lacks it.
    If the registry cannot be reached, a note says so, and the engine's own images do.
    """
    repository = work.inputs.plan.repository
    images = _from_registry(work, engine, repository) if repository is not None else {}
    rest = tuple(image.role for image in work.wanted if image.role not in images)
    if rest:
        local = replace(work, options=replace(work.options, roles=rest, push=False, tags=()))
        for built in build_in_engine(local, engine):
            source = "engine" if built.outcome is Outcome.FOUND else "built"
            image_id = built.image_id or ""
            images[built.role] = RunImage(reference=image_id, digest=_OWN.digest(image_id), source=source)
    return {image.role: images[image.role] for image in work.wanted}


def _from_registry(work: BuildRun, engine: Engine, repository: Repository) -> dict[Role, RunImage]:
    """Pulls the images that the registry has; of those that it lacks, the stage that they start from."""
    from training_imgtool.registry.connect import connect

    try:
        with connect(work.settings, work.progress) as registries:
            digests = find_images(work.wanted, partial(head, registries), work.progress)
            names = run_all(
                {
                    image.role: partial(_pull, work, engine, registries, image, digest)
                    for image in work.wanted
                    if (digest := digests[image.role]) is not None
                }
            )
            missing = tuple(image for image in work.wanted if digests[image.role] is None)
            pull_parents(work, missing, engine, registries, repository)
    except (RegistryRefusedError, CredentialsError, TemporaryError) as error:
        work.progress(Note(f"no image is taken from the registry: {error}"))
        return {}
    return {
        role: RunImage(reference=names[role], digest=digest, source="registry")
        for role, digest in digests.items()
        if digest is not None
    }


def _pull(work: BuildRun, engine: Engine, registries: Registries, image: RoleImage, digest: Digest) -> str:
    platform = image.plan.platform
    name = pull_image(
        digest, image.key, platform=platform, engine=engine, registries=registries, progress=work.progress
    )
    work.progress(Done(f"base {digest.repository.path}", Outcome.FOUND, "in the engine"))
    return name
