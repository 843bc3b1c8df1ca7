"""`imgtool verify` from spec to report: finds each role's image, collects facts about it, and checks them.

The registry comes first, since its images are what a job runs; an image that only an engine has comes second.
It takes the roles one after the other, so that an interrupted run removes its container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import (
    EngineUnavailableError,
    ImageMissingError,
    ImgtoolError,
    RegistryRefusedError,
)
from training_imgtool.core.progress import Note, Planned, Progress, Step
from training_imgtool.core.reference import Digest
from training_imgtool.core.sanitize import join_lines
from training_imgtool.core.settings import Settings
from training_imgtool.pipeline.engine.engines import pull_image
from training_imgtool.pipeline.find import find_images, push_hint, require_images
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.platforms import check_index
from training_imgtool.spec.model import Accelerator, Role
from training_imgtool.verify import inspect_container, inspect_registry
from training_imgtool.verify.checks import check
from training_imgtool.verify.checks.signature import check_signed
from training_imgtool.verify.expected_image import expect
from training_imgtool.verify.facts import Facts, Finding, Layer, Listing, Status, read_platform
from training_imgtool.verify.layers import overlay
from training_imgtool.verify.report import ImageReport

if TYPE_CHECKING:
    from training_imgtool.attest.cosign import Signatory
    from training_imgtool.engines.docker.engine import DockerEngine
    from training_imgtool.registry.connect import Registries

ENGINES = ("auto", "docker", "direct")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRun:
    """One run of `verify`."""

    inputs: Inputs
    roles: tuple[Role, ...]
    engine: str  # auto, docker or direct (the registry only)
    signed_by: Signatory | None = None  # who must have signed the images
    settings: Settings
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImageLocation:
    digest: Digest | None
    image_id: str | None

    @property
    def name(self) -> str:
        return str(self.digest or self.image_id)


def verify(run: VerifyRun) -> tuple[ImageReport, ...]:
    """Looks at the images of the roles and compares them with the plan.

    Raises ImageMissingError when an image is nowhere, and what the registry's client and the engine raise; what is
    wrong inside an image is in the report.
    """
    from training_imgtool.registry.connect import connect

    with _open_engine(run) as engine, connect(run.settings, run.progress) as registries:
        reports: list[ImageReport] = []
        reader = inspect_registry.LayerReader(registries, run.progress)
        for inputs in run.inputs.by_platform:
            each = replace(run, inputs=inputs)
            images = inputs.selected(run.roles)
            locations = _locate(each, images, engine, registries)
            reports += [_report(each, image, locations[image.role], engine, reader) for image in images]
        return _with_indexes(run, tuple(reports), registries) if run.inputs.others else tuple(reports)


def _with_indexes(run: VerifyRun, reports: tuple[ImageReport, ...], registries: Registries) -> tuple[ImageReport, ...]:
    """Adds to each report a finding about the index that names its image; raises ImageMissingError for one."""
    inputs = run.inputs.named_by_index()
    indexes = require_images(inputs, registries, run.progress, inputs.selected(run.roles))
    complaints = {
        image.role: check_index(run.inputs, image, indexes[image.role], registries)
        for image in inputs.selected(run.roles)
    }
    return tuple(
        replace(report, findings=(*report.findings, _make_index_finding(report.role, complaints[report.role], indexes)))
        for report in reports
    )


def _make_index_finding(role: Role, complaint: str | None, indexes: Mapping[Role, Digest]) -> Finding:
    status = Status.OK if complaint is None else Status.MISMATCH
    return Finding(
        check="index",
        role=role,
        status=status,
        found=join_lines(complaint or str(indexes[role]), limit=300),
        expected="the images of all platforms",
    )


@contextmanager
def _open_engine(run: VerifyRun) -> Iterator[DockerEngine | None]:
    from training_imgtool.engines.docker.client import connect
    from training_imgtool.engines.docker.probe import sweep

    engine = None
    if run.engine != "direct":
        try:
            engine = connect(run.settings)
        except EngineUnavailableError as error:
            if run.engine == "docker":
                raise
            run.progress(Note(f"{error.message}; verify reads the registry instead"))
    if engine is None:
        yield None
        return
    try:
        sweep(engine.api)
        yield engine
    finally:
        engine.close()


def _locate(
    run: VerifyRun, images: tuple[RoleImage, ...], engine: DockerEngine | None, registries: Registries
) -> Mapping[Role, _ImageLocation]:
    digests: Mapping[Role, Digest | None] = {}
    if run.inputs.plan.repository is not None:
        digests = find_images(images, registries, run.progress)
    locations = {}
    for image in images:
        digest = digests.get(image.role)
        image_id = _find_in_engine(image, engine) if digest is None and engine is not None else None
        locations[image.role] = _ImageLocation(digest=digest, image_id=image_id)
    missing = [image for image in images if not (locations[image.role].digest or locations[image.role].image_id)]
    if missing:
        where = "in the registry" if engine is None else "in the registry or the engine"
        raise ImageMissingError(
            f"{len(missing)} of {len(images)} images of the current spec, lock and code are not {where}: "
            + ", ".join(image.role for image in missing),
            hint=push_hint(run.inputs),
            details=tuple(f"{image.role}: {image.tag or image.key[:32]}" for image in missing),
        )
    return locations


def _find_in_engine(image: RoleImage, engine: DockerEngine) -> str | None:
    names = [str(image.tag)] if image.tag else []
    names.append(f"imgtool/{image.role}:{image.key[:32]}")
    images = (engine.api.inspect(name) for name in names)
    return engine.image_id(image.key) or next((str(loaded["Id"]) for loaded in images if loaded), None)


def _report(
    run: VerifyRun,
    image: RoleImage,
    location: _ImageLocation,
    engine: DockerEngine | None,
    reader: inspect_registry.LayerReader,
) -> ImageReport:
    """Reports on one image.

    Where the engine refuses the image, the registry's copy says why: raises what the engine said if that is sound.
    """
    spec, context = run.inputs.spec_file.spec, run.inputs.context
    refusal: ImgtoolError | None = None
    try:
        facts = _gather_facts(run, image, location, engine, reader)
    except (EngineUnavailableError, RegistryRefusedError) as error:
        if location.digest is None or engine is None:
            raise
        refusal, facts = error, _gather_facts(run, image, location, None, reader)
    findings = check(image, facts, spec, context)
    if run.signed_by is not None:
        findings += (check_signed(image.role, location.digest, run.signed_by, run.settings),)
    if refusal is not None and not any(finding.status is Status.MISMATCH for finding in findings):
        raise refusal
    return ImageReport.of(image, facts, findings)


def _gather_facts(
    run: VerifyRun,
    image: RoleImage,
    location: _ImageLocation,
    engine: DockerEngine | None,
    reader: inspect_registry.LayerReader,
) -> Facts:
    registries, plan = reader.registries, image.plan
    base_image = inspect_registry.read_base(plan.base, plan.platform, registries)
    base = base_image.config
    stored = None
    if location.digest is not None:
        stored = inspect_registry.read_image(location.digest, plan.platform, base_image, registries)
        if read_platform(stored.config) != plan.platform:  # an engine would refuse it
            engine = None
        new = {layer.digest: layer.size for layer in stored.layers if layer.own}
        size = sum(size for digest, size in new.items() if (digest, True) not in reader.listings)
        run.progress(Planned(str(image.role), size))
    values: dict[str, Any] = {"image": location.name, "base_config": base}
    try:
        values["expected"] = expect(run.inputs, image, base or {}, reader=reader, stored=stored, settings=run.settings)
    except ImgtoolError as error:
        values["unmade"] = f"this machine cannot make it again: {error.message}"
    listings: dict[int, Listing] = {}
    config: Mapping[str, Any] = {}
    layers: tuple[Layer, ...] = ()
    if stored is not None:
        config, layers = stored.config, stored.layers
        listings = reader.read(stored, subject=image.role)
    elif engine is not None and location.image_id is not None:
        config, sizes = inspect_container.read_engine_config(engine.api, location.image_id)
        layers = inspect_registry.list_layers(config, base, sizes)
        listings = _read_engine_layers(config, layers, engine, location.image_id, reader)
    whole = {number: listing for number, listing in listings.items() if listing.diff_id}
    values |= {
        "config": config,
        "layers": layers,
        "listings": whole,
        "damaged": {number: listing for number, listing in listings.items() if number not in whole},
        "tree": overlay(whole, len(layers)),
    }
    if engine is not None:
        libraries = sorted({*plan.locked.variant.libraries, *values["tree"].list_libraries()})
        values |= _run_inside(run, image, location, engine, reader, libraries=libraries)
    return Facts(**values)


def _read_engine_layers(
    config: Mapping[str, Any],
    layers: tuple[Layer, ...],
    engine: DockerEngine,
    image_id: str,
    reader: inspect_registry.LayerReader,
) -> dict[int, Listing]:
    """Lists the layers of an image that only an engine has, by the diff IDs that the engine worked out itself.

    Where this machine makes layers of the same diff IDs, those say what they hold; else the engine exports the image.
    """
    diff_ids = [str(diff_id) for diff_id in config["rootfs"]["diff_ids"]]
    found = {diff_id: listing for diff_id in diff_ids if (listing := reader.find(diff_id))}
    if not all(diff_ids[number] in found for number, layer in enumerate(layers) if layer.own):
        found |= inspect_container.read_export(engine.api, image_id)
    return {number: found[diff_id] for number, diff_id in enumerate(diff_ids) if diff_id in found}


def _run_inside(
    run: VerifyRun,
    image: RoleImage,
    location: _ImageLocation,
    engine: DockerEngine,
    reader: inspect_registry.LayerReader,
    *,
    libraries: list[str],
) -> dict[str, Any]:
    """Has a container import TensorFlow and the trainer; on a platform that the engine cannot run, says so instead."""
    plan, name = image.plan, location.name
    if location.digest is not None:
        name = pull_image(
            location.digest,
            image.key,
            platform=plan.platform,
            engine=engine,
            registries=reader.registries,
            progress=run.progress,
        )
    gpus, no_gpus = _find_gpus(image, engine)
    run.progress(Step(image.role, f"importing tensorflow and {plan.entry.name}"))
    module = plan.entry.module or plan.entry.arguments[-1]
    started = inspect_container.run(engine.api, name, module, libraries, gpus=gpus)
    if started.fault is not None and "exec format error" in started.fault:
        why = f"the engine's machine does not run {plan.platform}"
        run.progress(Note(f"{image.role}: {why}; verify reads its layers only"))
        return {"no_gpus": why}
    return {"run": started, "gpus": gpus, "no_gpus": no_gpus}


def _find_gpus(image: RoleImage, engine: DockerEngine) -> tuple[bool, str]:
    from training_imgtool.engines.docker.containers import Containers

    if image.plan.locked.variant.accelerator is not Accelerator.GPU:
        return False, "the role has no GPU"
    if not Containers(engine.api).machine().nvidia:
        return False, "the engine's machine offers no NVIDIA GPU"
    return True, ""
