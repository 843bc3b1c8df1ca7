"""`imgtool verify` from spec to report: finds each role's image, looks by every way there is, and checks.

What the registry has is what will be submitted, so that comes first; an image that is only in an engine is looked at
there. Roles come one after the other, so that an interrupted run removes its container on the way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_imgtool.build.find import find_images
from training_imgtool.build.inputs import Inputs, RoleImage
from training_imgtool.core.errors import (
    EngineUnavailableError,
    ImgtoolError,
    InputError,
    RegistryRefusedError,
    UsageError,
)
from training_imgtool.core.progress import Note, Progress, Step
from training_imgtool.core.reference import Digest
from training_imgtool.core.settings import Settings
from training_imgtool.spec.model import Accelerator, Role
from training_imgtool.verify import inspect_container, inspect_registry
from training_imgtool.verify.checks.all_checks import check
from training_imgtool.verify.expected_files import copied_files
from training_imgtool.verify.facts import Facts, Listing, Status, platform_of
from training_imgtool.verify.layers import overlaid
from training_imgtool.verify.report import ImageReport

if TYPE_CHECKING:
    from training_imgtool.engines.docker.engine import DockerEngine
    from training_imgtool.registry.connect import Registries

ENGINES = ("auto", "docker", "direct")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One run of `verify`."""

    inputs: Inputs
    roles: tuple[Role, ...]
    engine: str  # auto, docker or direct (the registry only)
    settings: Settings
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    digest: Digest | None
    image_id: str | None

    @property
    def name(self) -> str:
        return str(self.digest or self.image_id)


def verify(asked: Asked) -> tuple[ImageReport, ...]:
    """Looks at the images of the roles and compares them with the plan.

    Raises InputError when an image is nowhere, and what the registry's client and the engine raise; what is wrong
    inside an image is in the report.
    """
    from training_imgtool.registry.connect import connect

    images = asked.inputs.selected(asked.roles)
    with _engine(asked) as engine, connect(asked.settings, asked.progress) as registries:
        places = _places(asked, images, engine, registries)
        reader = inspect_registry.LayerReader(registries, asked.progress)
        return tuple(_report(asked, image, places[image.role], engine, reader) for image in images)


@contextmanager
def _engine(asked: Asked) -> Iterator[DockerEngine | None]:
    from training_imgtool.engines.docker.client import connect
    from training_imgtool.engines.docker.probe import sweep

    if asked.engine not in ENGINES:
        raise UsageError(f"--engine {asked.engine}: expected {', '.join(ENGINES)}")
    engine = None
    if asked.engine != "direct":
        try:
            engine = connect(asked.settings)
        except EngineUnavailableError as error:
            if asked.engine == "docker":
                raise
            asked.progress(Note(f"{error.message}; verify reads the registry instead"))
    if engine is None:
        yield None
        return
    try:
        sweep(engine.api)
        yield engine
    finally:
        engine.close()


def _places(
    asked: Asked, images: tuple[RoleImage, ...], engine: DockerEngine | None, registries: Registries
) -> Mapping[Role, _Place]:
    found: Mapping[Role, Digest | None] = {}
    if asked.inputs.plan.repository is not None:
        found = find_images(asked.inputs, images, registries, asked.progress)
    places = {}
    for image in images:
        digest = found.get(image.role)
        image_id = _in_engine(image, engine) if digest is None and engine is not None else None
        places[image.role] = _Place(digest=digest, image_id=image_id)
    missing = [image for image in images if not (places[image.role].digest or places[image.role].image_id)]
    if missing:
        where = "in the registry" if engine is None else "in the registry or the engine"
        raise InputError(
            f"{len(missing)} of {len(images)} images of the current inputs are not {where}: "
            + ", ".join(image.role for image in missing),
            hint=f"imgtool push {asked.inputs.spec_file.path}",
            details=tuple(f"{image.role}: {image.tag or image.key[:32]}" for image in missing),
        )
    return places


def _in_engine(image: RoleImage, engine: DockerEngine) -> str | None:
    names = [str(image.tag)] if image.tag else []
    names.append(f"imgtool/{image.role}:{image.key[:32]}")
    loaded = (engine.api.inspect(name) for name in names)
    return engine.image_id(image.key) or next((str(found["Id"]) for found in loaded if found), None)


def _report(
    asked: Asked, image: RoleImage, place: _Place, engine: DockerEngine | None, reader: inspect_registry.LayerReader
) -> ImageReport:
    """The report on one image.

    Where the engine refuses the image, the registry's copy says why: raises what the engine said if that is sound.
    """
    spec, context = asked.inputs.spec_file.spec, asked.inputs.context
    refusal: ImgtoolError | None = None
    try:
        facts = _facts(asked, image, place, engine, reader)
    except (EngineUnavailableError, RegistryRefusedError) as error:
        if place.digest is None or engine is None:
            raise
        refusal, facts = error, _facts(asked, image, place, None, reader)
    findings = check(image, facts, spec, context)
    if refusal is not None and not any(finding.status is Status.MISMATCH for finding in findings):
        raise refusal
    return ImageReport.of(image, facts, findings)


def _facts(
    asked: Asked, image: RoleImage, place: _Place, engine: DockerEngine | None, reader: inspect_registry.LayerReader
) -> Facts:
    registries, plan = reader.registries, image.plan
    base = inspect_registry.base_config(plan.base, plan.platform, registries)
    stored = None
    if place.digest is not None:
        stored = inspect_registry.read_image(place.digest, plan.platform, base, registries)
        if platform_of(stored.config) != plan.platform:  # no engine that was asked for the planned one gets it
            engine = None
    inside = _seen_inside(asked, image, place, engine, registries) if engine is not None else {}
    listings: dict[int, Listing] = {}
    if stored is not None:
        config, layers = stored.config, stored.layers
        listings = reader.read(stored, beside_container="tree" in inside, subject=image.role)
    elif engine is not None and place.image_id is not None:
        config, sizes = inspect_container.engine_config(engine.api, place.image_id)
        layers = inspect_registry.layers_of(config, base, sizes)
    whole = {number: listing for number, listing in listings.items() if listing.diff_id}
    values: dict[str, Any] = {
        "image": place.name,
        "config": config,
        "layers": layers,
        "listings": whole,
        "damaged": {number: listing for number, listing in listings.items() if number not in whole},
        "base_config": base,
    }
    if "tree" not in inside:
        values["tree"] = overlaid(whole, len(layers), plan.exclude)
    return Facts(**values | inside)


def _seen_inside(
    asked: Asked, image: RoleImage, place: _Place, engine: DockerEngine, registries: Registries
) -> dict[str, Any]:
    """What containers tell; of a platform that the engine cannot run, nothing, with the reason."""
    plan = image.plan
    if place.digest is not None:
        login = registries.login(place.digest.repository.registry).login
        engine.pull_base(place.digest, plan.platform, login, asked.progress)
    asked.progress(Step(image.role, "looking into the image"))
    folders = copied_files(image.dockerfile, asked.inputs.context, {}).folders
    libraries = plan.locked.variant.libraries
    looked = inspect_container.look(engine.api, place.name, libraries, folders, plan.exclude)
    if looked.fault is not None and "exec format error" in looked.fault:
        why = f"the engine's machine does not run {plan.platform}"
        asked.progress(Note(f"{image.role}: {why}; verify reads the registry instead"))
        return {"no_gpus": why}
    values: dict[str, Any] = {"look": looked}
    tree = inspect_container.tree_of(looked)
    if tree is not None:
        values["tree"] = tree
    if looked.fault is not None:
        return values
    gpus, values["no_gpus"] = _gpus(image, engine)
    asked.progress(Step(image.role, f"importing tensorflow and {plan.module}"))
    values["run"] = inspect_container.run(engine.api, place.name, plan.module, gpus=gpus)
    values["gpus"] = gpus
    return values


def _gpus(image: RoleImage, engine: DockerEngine) -> tuple[bool, str]:
    from training_imgtool.engines.docker.containers import Containers

    if image.plan.locked.variant.accelerator is not Accelerator.GPU:
        return False, "the role has no GPU"
    if not Containers(engine.api).machine().nvidia:
        return False, "the engine's machine offers no NVIDIA GPU"
    return True, ""
