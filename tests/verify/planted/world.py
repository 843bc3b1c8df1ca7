"""A registry with a sound image, and an attacker who can put anything into it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.platforms_world import PLATFORMS, lock_platforms, other_platform, put_index
from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.servers.memory_registry import MemoryRegistry, like_distribution
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.interpreters import Interpreter
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.model.load import load
from training_imgtool.model.spec import Role
from training_imgtool.oci.image.image import dump_document
from training_imgtool.oci.machine import Machine as OpenMachine
from training_imgtool.oci.registry.manifests import sha256_digest
from training_imgtool.plan.inputs import Inputs, prepare
from training_imgtool.plan.project_files import SpecChoice
from training_imgtool.resolve.wheels.interpreters import find_interpreter
from training_imgtool.verify.findings import Accepted, ImageReport
from training_imgtool.verify.report import list_failures
from training_imgtool.verify.session import VerifyRun, verify

PATH = "team/demo"
ROLE = Role.WORKER


@dataclass(frozen=True)
class World:
    """A pushed spec: its worker's image is what the attacker is after."""

    server: MemoryRegistry
    inputs: Inputs
    settings: Settings

    @property
    def manifests(self) -> dict[str, tuple[str, bytes]]:
        """The manifests of the repository, by tag and digest."""
        return self.server.manifests[PATH]

    @property
    def blobs(self) -> dict[str, bytes]:
        """Its blobs, by digest."""
        return self.server.blobs[PATH]

    def tag(self, role: Role = ROLE, inputs: Inputs | None = None) -> str:
        """The tag of a role's image."""
        (image,) = (inputs or self.inputs).selected((role,))
        return image.registry_tag.name

    def put_blob(self, data: bytes) -> dict[str, Any]:
        """Stores a blob; its digest and size."""
        digest = sha256_digest(data)
        self.blobs[digest] = data
        return {"digest": digest, "size": len(data)}

    def put_manifest(self, body: bytes, media_type: str, *names: str) -> dict[str, Any]:
        """Stores a manifest under its digest and under tags; its descriptor."""
        digest = sha256_digest(body)
        for name in (*names, digest):
            self.manifests[name] = (media_type, body)
        return {"mediaType": media_type, "digest": digest, "size": len(body)}

    def verify(self, accept: frozenset[Accepted] = frozenset()) -> tuple[ImageReport, ...]:
        """The reports about the worker."""
        run = VerifyRun(inputs=self.inputs, roles=(ROLE,), accept=accept, machine=OpenMachine.open(self.settings))
        return verify(run)

    def complaints(self, accept: frozenset[Accepted] = frozenset()) -> str:
        """What `verify` says against the image; empty where it ends with 0. Only errors that have a code are caught."""
        try:
            return "; ".join(list_failures(self.verify(accept)))
        except ImgtoolError as error:
            return f"exit {error.exit_code}: {error}"

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undoes at its end whatever the attacker did."""
        manifests, blobs = dict(self.manifests), dict(self.blobs)
        try:
            yield
        finally:
            self.server.manifests[PATH], self.server.blobs[PATH] = manifests, blobs


class Forgery:
    """The worker's image in parts, to be changed and then put in its place with every digest right.

    Attributes:
        manifest, config: the documents.
        body, config_body: their bytes, instead of the documents'.
        media_type: of the manifest, in the header.
    """

    def __init__(self, world: World, role: Role = ROLE) -> None:
        self.world = world
        self.media_type, body = world.manifests[world.tag(role)]
        self.manifest: dict[str, Any] = json.loads(body)
        self.config: dict[str, Any] = json.loads(world.blobs[self.manifest["config"]["digest"]])
        self._named = self.manifest["config"]["digest"]
        self.body: bytes | None = None
        self.config_body: bytes | None = None

    @property
    def layers(self) -> list[dict[str, Any]]:
        """The descriptors of the layers; the base has one, the last is the code."""
        rows: list[dict[str, Any]] = self.manifest["layers"]
        return rows

    @property
    def diff_ids(self) -> list[str]:
        """The diff IDs of the config."""
        rows: list[str] = self.config["rootfs"]["diff_ids"]
        return rows

    def archive(self, number: int = -1) -> bytes:
        """The tar of a layer."""
        return gzip.decompress(self.world.blobs[self.layers[number]["digest"]])

    def put_stream(self, data: bytes, number: int = -1) -> None:
        """Puts a blob in the place of a layer, as if it held the same archive."""
        self.layers[number] |= self.world.put_blob(data)

    def put_archive(self, archive: bytes, number: int = -1) -> None:
        """Puts another archive in the place of a layer."""
        self.put_stream(gzip.compress(archive, mtime=0), number)
        self.diff_ids[number] = sha256_digest(archive)

    def add_layer(self, archive: bytes, at: int | None = None, **more: Any) -> None:
        """Adds a layer with its line of the history."""
        at = len(self.layers) if at is None else at
        row = {**self.layers[-1], **self.world.put_blob(gzip.compress(archive, mtime=0)), **more}
        self.layers.insert(at, row)
        self.diff_ids.insert(at, sha256_digest(archive))
        self.config["history"].append({**self.config["history"][-1], "empty_layer": False})

    def put(self) -> None:
        """Puts the image under the tag of the worker."""
        config = dump_document(self.config) if self.config_body is None else self.config_body
        if sha256_digest(config) != self._named:
            self.manifest["config"] |= self.world.put_blob(config)
        body = dump_document(self.manifest) if self.body is None else self.body
        self.world.put_manifest(body, self.media_type, self.world.tag())


def _release(settings: Settings) -> str:
    found = find_interpreter("3.11", settings.environ, None)
    assert isinstance(found, Interpreter)
    return found.version


@contextmanager
def open_world(
    folder: Path,
    *,
    referrers: bool = False,
    several: bool = False,
    attested: bool = False,
    release: str = "",
    texts: Mapping[str, bytes] | None = None,
) -> Iterator[World]:
    """Pushes a spec whose parameter server has an image of its own.

    Args:
        folder: for the machine.
        referrers: whether the registry has the referrers API.
        several: whether the spec is for two platforms.
        attested: whether the images have a bill and a provenance; one that is missing would hide what else is wrong.
        release: of the base's Python; by default one that this machine has.
        texts: files of the base.
    """
    with MemoryRegistry(like_distribution, referrers=referrers) as server:
        switch = "on" if attested else "off"
        machine = Machine(folder / "machine", f"{server.host}/team", server.host, IMGTOOL_ATTESTATIONS=switch)
        settings = from_environment(machine.env)
        base = make_base(docker=False, env=(f"PYTHON_VERSION={release or _release(settings)}",), texts=texts)
        base.put(server.host)
        project = Project(folder / "project", Wheels(folder / "wheels"), base)
        spec = (project.folder / "image.yaml").read_text()
        if several:
            bases = {"linux/amd64": base, "linux/arm64": other_platform(base)}
            put_index(server.host, bases)
            project.write("image.yaml", f"platform: [{', '.join(PLATFORMS)}]\n{spec}")
            lock_platforms(project, bases)
        else:
            own = "  ps: {machine: n1-standard-4, env: {OWN: '1'}}\n"
            project.write("image.yaml", spec.replace("  ps: {machine: n1-standard-4}\n", own))
            project.lock()
        machine.give(project.wheels)
        machine.push(project)
        inputs = prepare(load(project.folder / "image.yaml"), OpenMachine.open(settings), SpecChoice(locked=True))
        world = World(server, inputs, settings)
        assert world.complaints() == ""
        yield world
