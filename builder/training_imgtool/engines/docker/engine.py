"""The Docker Engine as an engine: builds stages with its classic builder, pulls bases, pushes tags.

Success is what the engine was seen to have: an image under the stage's key, a base under its digest, a digest from
the registry. The classic builder is used because the API's BuildKit needs a session that docker-py does not speak.
"""

from __future__ import annotations

import random
import re
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

from training_imgtool.core.errors import (
    EngineUnavailableError,
    ImgtoolError,
    InputError,
    LocalFileError,
    TemporaryError,
)
from training_imgtool.core.progress import Done, LogLine, Outcome, Progress, Step, Transfer
from training_imgtool.core.reference import Digest, Login, Tag, check_digest
from training_imgtool.core.sanitize import sanitize_line
from training_imgtool.engines import StageBuild
from training_imgtool.engines.docker.containers import CONFLICT, GONE, RefusedError, make_refusal
from training_imgtool.engines.docker.events import BuildLog, TransferLog, error_message
from training_imgtool.engines.docker.registry_errors import worth_retrying
from training_imgtool.engines.stream import blocks_of

if TYPE_CHECKING:
    from training_imgtool.engines.docker.client import DockerApi

STAGES = "imgtool/stage"
_KEY_DIGITS = 32  # of a key in the tag that an image has in a registry
DOCKERFILE = ".imgtool.Dockerfile"
_TRIES = 5
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_RETRY_SECONDS = 120.0
_KEY = re.compile(r"[0-9a-f]{16,128}\Z")

T = TypeVar("T")
Log = TypeVar("Log", BuildLog, TransferLog)


class DockerEngine:
    """A Docker Engine that answered. Reads no environment, prints nothing. Thread-safe: a connection per request.

    Attributes:
        api: its API.
        reads_zstd: whether it unpacks zstd layers.
        refuses_unknown: whether it refuses all syntax that only BuildKit has; Docker's classic builder drops some.
    """

    def __init__(self, api: DockerApi, *, reads_zstd: bool, refuses_unknown: bool) -> None:
        self.api = api
        self.reads_zstd = reads_zstd
        self.refuses_unknown = refuses_unknown

    def image_id(self, key: str) -> str | None:
        """Returns the image built under `key` that the engine still has, or None."""
        image = self.api.inspect(f"{STAGES}:{key}")
        return str(image["Id"]) if image else None

    def pull_base(self, base: Digest, platform: str, login: Login | None, progress: Progress) -> None:
        """Makes the base available under its digest; one that is there for this platform is not pulled.

        Raises InputError (the base is for another platform), RegistryRefusedError, CredentialsError, TemporaryError,
        EngineUnavailableError.
        """
        present = self.api.inspect(str(base))
        if present is not None and _is_for(present, platform):
            return
        subject, host = f"base {base.repository.path}", base.repository.registry
        started = time.monotonic()
        progress(Step(subject, f"pulling {base}"))

        def pull() -> None:
            def send(client: Any) -> Any:
                name, auth = str(base.repository), _auth(login, host)
                return client.pull(name, tag=base.digest, stream=True, decode=True, auth_config=auth, platform=platform)

            self._follow(send, TransferLog(f"{subject}: pull", subject, host, login, progress))

        self._retry(pull, subject, progress)
        image = self.api.inspect(str(base))
        if image is None:
            raise EngineUnavailableError(f"{subject}: the Docker Engine pulled {base} and does not have it")
        if not _is_for(image, platform):
            raise InputError(
                f"base image {base} is an image for {image.get('Os')}/{image.get('Architecture')}, "
                f"and the spec's platform is {platform}",
                hint="set `platform:` to the base's, or name a base for this platform",
            )
        progress(Done(subject, Outcome.FETCHED, base.digest, time.monotonic() - started))

    def build(self, stage: StageBuild, progress: Progress) -> str:
        """Builds one stage, tags it `imgtool/stage:<key>` and returns its image ID.

        Raises BuildFailedError, InputError (a COPY source is missing), EngineUnavailableError, and what writing
        the context raises.
        """
        self._require(stage)
        log = BuildLog(stage, progress, self.api.answers)

        def send(client: Any) -> Any:
            return client.build(
                fileobj=_context(stage, progress, client.aborted.is_set),
                custom_context=True,
                dockerfile=DOCKERFILE,
                tag=f"{STAGES}:{stage.key}",
                platform=stage.platform,
                nocache=stage.no_cache,
                rm=True,
                forcerm=True,
                pull=False,
                decode=True,
            )

        built = self._follow(send, log).finished()
        if self.image_id(stage.key) is None:
            raise EngineUnavailableError(f"{stage.subject}: the Docker Engine built {built} and did not keep its tag")
        return built

    def tag(self, image_id: str, tag: Tag) -> bool:
        """Names an image; returns whether no image had that name before. Raises EngineUnavailableError."""
        is_new = self.api.inspect(str(tag)) is None
        with self.api.ask(f"naming {image_id[:19]} {tag}") as client:
            client.tag(image_id, str(tag.repository), tag.name)
        return is_new

    def untag(self, tag: Tag) -> None:
        """Takes a name away; the image stays if it has another. Raises EngineUnavailableError."""
        remove_image(self.api, str(tag))

    def push(self, tag: Tag, login: Login | None, progress: Progress, *, subject: str | None = None) -> str | None:
        """Pushes a tag; the manifest digest the registry was given, or None: Podman's engine (4.3) does not say it.

        Raises RegistryRefusedError, CredentialsError, TemporaryError (after five tries), EngineUnavailableError.
        """
        subject = subject or tag.name
        host = tag.repository.registry
        progress(Step(subject, f"pushing {tag}"))

        def push() -> str | None:
            def send(client: Any) -> Any:
                auth = _auth(login, host)
                return client.push(str(tag.repository), tag.name, stream=True, decode=True, auth_config=auth)

            log = self._follow(send, TransferLog(f"{subject}: push", subject, host, login, progress))
            progress(LogLine(subject, log.summary()))
            return None if log.digest is None else check_digest(log.digest)

        return self._retry(push, subject, progress)

    def name_stage(self, image: str, key: str) -> None:
        """Names an image that the engine has `imgtool/stage:<key>`; raises EngineUnavailableError."""
        with self.api.ask(f"naming {image} {STAGES}:{key}") as client:
            client.tag(image, STAGES, key)

    def load(self, blocks: Iterable[bytes], key: str) -> str:
        """Loads an image from a tar as `docker load` takes it, and names it `imgtool/stage:<key>`; returns its ID.

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
            raise EngineUnavailableError("loading an image: the Docker Engine's answer ended without naming it")
        image_id = str(image["Id"])
        self.name_stage(image_id, key)
        return image_id

    def close(self) -> None:
        """Stops what is still running: builds, pulls and pushes end in their threads with EngineUnavailableError."""
        self.api.close()

    def _follow(self, send: Callable[[Any], Any], log: Log) -> Log:
        with self.api.stream(send, where=log.where, refused=log.failure) as events:
            for event in events:
                log.take(event)
        return log

    def _require(self, stage: StageBuild) -> None:
        """Raises unless all that the stage starts from is there: the classic builder would pull it from Docker Hub.

        It also takes an image ID of any platform, so that is looked at here.
        """
        for name in stage.images:
            if name == "scratch":
                continue
            reference = f"{STAGES}:{name}" if _KEY.match(name) else name
            image = self.api.inspect(reference)
            if image is None:
                raise EngineUnavailableError(
                    f"{stage.subject}: the image {reference}, which the stage needs, is no longer in the Docker Engine",
                    hint="something removed it meanwhile: run the same command again",
                )
            if not _is_for(image, stage.platform):
                raise InputError(
                    f"{stage.subject}: {reference} is an image for {image.get('Os')}/{image.get('Architecture')}, "
                    f"and the stage is to be built for {stage.platform}"
                )

    def _retry(self, attempt: Callable[[], T], subject: str, progress: Progress) -> T:
        """Calls `attempt` until it succeeds or fails for good; five times at most, the engine retries blobs itself."""
        began = time.monotonic()
        number = 1
        while True:
            try:
                return attempt()
            except TemporaryError as error:
                seconds = time.monotonic() - began
                if not worth_retrying(error):
                    raise
                if number == _TRIES or seconds > _RETRY_SECONDS:
                    message = f"{error.message} ({number} tries in {seconds:.0f} s)"
                    raise TemporaryError(message, hint=error.hint) from error
                delay = random.uniform(0, min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (number - 1)))  # noqa: S311 - jitter
                progress(LogLine(subject, f"try {number} of {_TRIES} failed, next in {delay:.1f} s: {error.message}"))
            number += 1
            if self.api.running.stopped.wait(delay):
                raise EngineUnavailableError(f"{subject}: stopped")


def _context(stage: StageBuild, progress: Progress, aborted: Callable[[], bool]) -> Iterator[bytes]:
    """Yields the stage's tar behind its Dockerfile, in blocks.

    The `.dockerignore` makes the engine take both away again before it builds, so that no COPY sees them.
    """

    def write(stream: IO[bytes]) -> None:
        stream.write(_tar_entry(".dockerignore", f".dockerignore\n{DOCKERFILE}\n"))
        stream.write(_tar_entry(DOCKERFILE, stage.dockerfile))
        try:
            stage.context(stream)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise LocalFileError(f"{stage.subject}: the build context cannot be read: {error}") from error

    done = 0
    for block in blocks_of(write, aborted):
        done += len(block)
        progress(Transfer(stage.subject, "context", done, None))
        yield block


def _is_for(image: Mapping[str, Any], platform: str) -> bool:
    return [image.get("Os"), image.get("Architecture")] == platform.split("/")[:2]


def _tar_entry(name: str, text: str) -> bytes:
    data = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    return entry.tobuf() + data + bytes(-len(data) % tarfile.BLOCKSIZE)


def _auth(login: Login | None, host: str) -> dict[str, str]:
    """Returns what goes into X-Registry-Auth. Never None, for which docker-py would look up a login of its own."""
    if login is None:
        return {}
    if login.username == "<token>":  # what a credential helper answers for an identity token
        return {"identitytoken": login.password, "serveraddress": host}
    return {"username": login.username, "password": login.password, "serveraddress": host}


def list_stages(api: DockerApi) -> dict[str, float]:
    """Returns when each stage was last built, in seconds since 1970, by its name; raises EngineUnavailableError."""
    with api.ask("listing the stages") as client:
        names = [str(name) for image in client.images(STAGES) for name in image.get("RepoTags") or ()]
    images = {name: api.inspect(name) for name in sorted(names)}
    return {name: _built(image) for name, image in images.items() if image}


def remove_stage(api: DockerApi, name: str) -> bool:
    """Removes a stage under all names that its key is part of; false when a container runs on it.

    `build --load` gave it the second one, or a push that was killed. Raises EngineUnavailableError.
    """
    end = f"-{name.rpartition(':')[2][:_KEY_DIGITS]}"
    for other in (api.inspect(name) or {}).get("RepoTags") or ():
        if other.endswith(end):
            remove_image(api, other)
    return remove_image(api, name)


def measure_layers(api: DockerApi) -> int:
    """Returns the bytes of all layers that the engine holds; raises EngineUnavailableError."""
    with api.ask("measuring its layers") as client:
        return int(client.df().get("LayersSize") or 0)


def remove_image(api: DockerApi, name: str) -> bool:
    """Takes an image's name away, and with it what nothing else needs; false when a container runs on it.

    A name that is not there is fine. Raises EngineUnavailableError.
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
    """Returns the later of when it was made and when it got its name; 0 for what the engine does not say."""
    named = (image.get("Metadata") or {}).get("LastTagTime")
    return max(_seconds(image.get("Created")), _seconds(named))


def _seconds(text: object) -> float:
    """Returns a time as the engine writes it (RFC 3339), in seconds since 1970."""
    try:
        return max(0.0, datetime.fromisoformat(str(text)).timestamp())
    except (ValueError, OverflowError):
        return 0.0
