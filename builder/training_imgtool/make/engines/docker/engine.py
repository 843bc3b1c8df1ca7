"""The image store of a Docker Engine: loads images, pulls images by digest, names and removes images.

A method succeeds only if the engine then finds the result: a loaded image under its key, or a base under its digest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from training_imgtool.base.errors import EngineUnavailableError, ImgtoolError, InputError
from training_imgtool.base.progress import Done, Outcome, Progress, Step
from training_imgtool.base.reference import Digest, Login, Tag
from training_imgtool.base.sanitize import sanitize_line
from training_imgtool.make.engines.docker.containers import CONFLICT, GONE, RefusedError, make_refusal
from training_imgtool.make.engines.docker.events import PullLog, error_message

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.client import DockerApi

STAGES = "imgtool/stage"
_KEY_DIGITS = 32  # of the key, in an image's tag in a registry


class DockerEngine:
    """A Docker Engine that answered. Reads no environment variables. Thread-safe: each request has a connection.

    Attributes:
        api: its API.
        reads_zstd: whether the engine unpacks zstd layers.
        is_docker: whether the engine is Docker's, and not another program with the same API.
    """

    def __init__(self, api: DockerApi, *, reads_zstd: bool, is_docker: bool) -> None:
        self.api = api
        self.reads_zstd = reads_zstd
        self.is_docker = is_docker

    def image_id(self, key: str) -> str | None:
        """Returns the ID of the image that imgtool loaded under `key`; None if the engine no longer has the image."""
        image = self.api.inspect(f"{STAGES}:{key}")
        return str(image["Id"]) if image else None

    def pull_base(self, base: Digest, platform: str, login: Login | None, progress: Progress) -> None:
        """Pulls the base image by digest, unless the engine has it for this platform.

        Raises InputError (the base is for another platform), RegistryRefusedError, CredentialsError, TemporaryError,
        EngineUnavailableError.
        """
        present = self.api.inspect(str(base))
        if present is not None and _is_for(present, platform):
            return
        subject, host = f"base {base.repository.path}", base.repository.registry
        started = time.monotonic()
        progress(Step(subject, f"pulling {base}"))

        def send(client: Any) -> Any:
            name, auth = str(base.repository), _auth(login, host)
            return client.pull(name, tag=base.digest, stream=True, decode=True, auth_config=auth, platform=platform)

        log = PullLog(subject, host, login, progress)
        with self.api.stream(send, where=log.where, refused=log.failure) as events:
            for event in events:
                log.take(event)
        image = self.api.inspect(str(base))
        if image is None:
            raise EngineUnavailableError(f"{subject}: the Docker Engine pulled {base}, but does not have it now")
        if not _is_for(image, platform):
            raise InputError(
                f"base image {base} is an image for {image.get('Os')}/{image.get('Architecture')}, "
                f"but the spec's platform is {platform}",
                hint="set `platform:` to the base image's platform, or name a base image for the spec's platform",
            )
        progress(Done(subject, Outcome.FETCHED, base.digest, time.monotonic() - started))

    def tag(self, image_id: str, tag: Tag) -> None:
        """Names an image; raises EngineUnavailableError."""
        with self.api.ask(f"naming {image_id[:19]} {tag}") as client:
            client.tag(image_id, str(tag.repository), tag.name)

    def count_held(self, diff_ids: Sequence[str]) -> int:
        """Counts the lowest layers of an image that the engine already has, so that `load` can leave out these layers.

        The count is 0 for containerd's image store and for engines other than Docker's, because both need every layer.
        Raises EngineUnavailableError.
        """
        with self.api.ask("listing the images") as client:
            if not self.is_docker or any("containerd" in str(row) for row in client.info().get("DriverStatus") or ()):
                return 0
            images = [client.inspect_image(image["Id"]) for image in client.images(STAGES)]
        pairs = [zip(diff_ids, image["RootFS"].get("Layers") or (), strict=False) for image in images]
        return max((sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], one)) for one in pairs), default=0)

    def load(self, blocks: Iterable[bytes], key: str) -> str:
        """Loads an image from a tar in the format of `docker load`, names it `imgtool/stage:<key>`, and returns its ID.

        Raises EngineUnavailableError.
        """

        def send(client: Any) -> Any:
            return client.load_image(filter(None, blocks), quiet=True)  # an empty chunk would end the request

        loaded = ""

        def failure(message: str, code: int | None = None) -> ImgtoolError:
            del code
            return EngineUnavailableError(f"loading an image: {sanitize_line(message)}")

        with self.api.stream(send, where=lambda: "loading an image", refused=failure) as events:
            for event in events:
                if message := error_message(event):
                    raise failure(message)
                _, marker, name = str(event.get("stream", "")).partition("Loaded image")
                loaded = name.partition(":")[2].strip() if marker else loaded
        image = self.api.inspect(loaded) if loaded else None
        if image is None:
            raise EngineUnavailableError("loading an image: the Docker Engine's answer ended without the image's name")
        image_id = str(image["Id"])
        with self.api.ask(f"naming {image_id} {STAGES}:{key}") as client:
            client.tag(image_id, STAGES, key)
        return image_id

    def close(self) -> None:
        """Stops the running loads and pulls, which raise EngineUnavailableError in their threads."""
        self.api.close()


def _is_for(image: Mapping[str, Any], platform: str) -> bool:
    return [image.get("Os"), image.get("Architecture")] == platform.split("/")[:2]


def _auth(login: Login | None, host: str) -> dict[str, str]:
    """Returns the value of X-Registry-Auth, never None, because docker-py would then look up a login itself."""
    if login is None:
        return {}
    if login.username == "<token>":  # credential helpers use this user name for an identity token
        return {"identitytoken": login.password, "serveraddress": host}
    return {"username": login.username, "password": login.password, "serveraddress": host}


def list_stages(api: DockerApi) -> dict[str, float]:
    """Maps each image's name to its last time of loading, in seconds since 1970; raises EngineUnavailableError."""
    with api.ask("listing the images") as client:
        names = [str(name) for image in client.images(STAGES) for name in image.get("RepoTags") or ()]
    images = {name: api.inspect(name) for name in sorted(names)}
    return {name: _built(image) for name, image in images.items() if image}


def remove_stage(api: DockerApi, name: str) -> bool:
    """Removes all names of an image that contain the image's key; returns false if a container uses the image.

    Raises EngineUnavailableError.
    """
    end = f"-{name.rpartition(':')[2][:_KEY_DIGITS]}"
    for other in (api.inspect(name) or {}).get("RepoTags") or ():
        if other.endswith(end):
            remove_image(api, other)
    return remove_image(api, name)


def measure_layers(api: DockerApi) -> int:
    """Returns the size of all layers in the engine, in bytes; raises EngineUnavailableError."""
    with api.ask("measuring its layers") as client:
        return int(client.df().get("LayersSize") or 0)


def remove_image(api: DockerApi, name: str) -> bool:
    """Removes a name of an image, and the image if this was the last name; returns false if a container uses the image.

    Succeeds also if the name does not exist. Raises EngineUnavailableError.
    """
    try:
        with api.ask(f"removing {name}", refused=make_refusal(f"removing {name}")) as client:
            client.remove_image(name)
    except RefusedError as error:
        if error.status not in {GONE, CONFLICT}:
            raise
        return error.status == GONE
    return True


def _built(image: dict[str, Any]) -> float:
    """Returns when the image was created or last tagged, whichever is later; 0 if both times are unknown."""
    named = (image.get("Metadata") or {}).get("LastTagTime")
    return max(_seconds(image.get("Created")), _seconds(named))


def _seconds(text: object) -> float:
    """Returns a time as the engine writes it (RFC 3339), in seconds since 1970."""
    try:
        return max(0.0, datetime.fromisoformat(str(text)).timestamp())
    except (ValueError, OverflowError):
        return 0.0
