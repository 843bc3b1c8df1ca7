"""Copies an image from a registry to an engine's image store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from training_imgtool.base.errors import EngineUnavailableError, TemporaryError
from training_imgtool.base.http.retry import PassingError, Retry
from training_imgtool.base.progress import Done, Note, Outcome, Step
from training_imgtool.base.reference import Digest
from training_imgtool.oci.image.docker_archive import load_archive
from training_imgtool.oci.image.image import DirectImage, read_config

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.engine import DockerEngine
    from training_imgtool.oci.machine import Machine
    from training_imgtool.oci.registry.client import Registry
    from training_imgtool.oci.registry.manifests import Manifest


def pull_image(
    digest: Digest,
    key: str,
    *,
    platform: str,
    engine: DockerEngine,
    machine: Machine,
) -> str:
    """Pulls or loads an image; returns its name in the engine: the digest, or the image's ID.

    Docker before 23 cannot unpack zstd layers. imgtool uncompresses such layers, and loads the image as `docker load`
    does. The image keeps its config and ID.

    Args:
        digest: the image.
        key: the image's content key; a loaded image gets the name `imgtool/stage:<key>`.
        platform: such as `linux/amd64`.
        engine: the engine that gets the image.
        machine: reads the image, or provides the login if the engine pulls.

    Raises what `DockerEngine.pull_base`, `DockerEngine.load` and the registry's client raise.
    """
    registry = machine.registries.at(digest.repository)
    manifest = None if engine.reads_zstd else registry.manifest(digest, platform)
    if manifest is None or not any(layer.media_type.endswith("zstd") for layer in manifest.layers):
        _pull(digest, platform, engine, machine)
        return str(digest)
    if engine.image_id(key) == manifest.config.digest:
        return manifest.config.digest
    subject, started = f"base {digest.repository.path}", time.monotonic()
    machine.progress(Step(subject, f"loading {digest}, whose zstd layers this engine does not read"))
    archive = load_archive(
        f"imgtool/stage:{key}",
        _make_image(manifest, digest, registry),
        lambda layer: registry.blob(digest.repository, layer),
    )
    image_id = engine.load(archive, key)
    if image_id != manifest.config.digest:
        raise EngineUnavailableError(
            f"loading {digest}: expected the ID {manifest.config.digest}, the engine reports {image_id}"
        )
    machine.progress(Done(subject, Outcome.FETCHED, digest.digest, time.monotonic() - started))
    return image_id


def _pull(digest: Digest, platform: str, engine: DockerEngine, machine: Machine) -> None:
    """Has the engine pull the image, up to five times if the registry does not answer for a moment."""
    host = digest.repository.registry
    login = machine.registries.login(host).login
    for attempt in Retry(tries=5).attempts(host, lambda text: machine.progress(Note(text))):
        with attempt:
            try:
                engine.pull_base(digest, platform, login, machine.progress)
            except TemporaryError as error:
                raise PassingError("does not answer the engine", final=error) from error


def _make_image(manifest: Manifest, digest: Digest, registry: Registry) -> DirectImage:
    config = registry.read(digest.repository, manifest.config)
    return DirectImage(
        base_layers=manifest.layers,
        layers=(),
        config=config,
        config_descriptor=manifest.config,
        manifest=manifest.body,
        manifest_type=manifest.media_type,
        digest=manifest.digest,
        diff_ids=tuple(read_config(config)["rootfs"]["diff_ids"]),
    )
