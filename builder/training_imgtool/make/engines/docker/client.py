"""The adapter of docker-py: connects to a Docker Engine and speaks its API.

By itself, docker-py reads all logins from config.json, uses proxies from the environment and .netrc, and raises the
errors of four packages. `_Client` and `DockerApi` prevent this behaviour.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import docker
import docker.errors
import docker.tls
from docker.constants import DEFAULT_DOCKER_API_VERSION

from training_imgtool.base.errors import EngineUnavailableError, ImgtoolError
from training_imgtool.base.sanitize import join_lines
from training_imgtool.base.version import __version__
from training_imgtool.make.engines.docker.context import Endpoint
from training_imgtool.make.engines.docker.registry_errors import FULL_HINT, is_full
from training_imgtool.make.engines.stream import Event, Running, follow

_OLDEST_API = (1, 32)  # the first version whose pull accepts a platform
_SHORT_SECONDS = 60.0
_PING_SECONDS = 10.0
_CLOSE_SECONDS = 3.0
SILENCE_SECONDS = 30.0  # without an event, after which imgtool pings the engine
_PACKAGES = frozenset({"docker", "requests", "urllib3", "http", "json", "ssl"})
_CUT = frozenset({"IncompleteRead", "InvalidChunkLength"})  # of urllib3 and http.client
_START = "start it (for example `sudo systemctl start docker`), or point DOCKER_HOST or `docker context use` at one"


def reach(endpoint: Endpoint, timeout: float) -> tuple[DockerApi, str]:
    """Waits for the engine's answer, and returns the engine's API and the answer's header `Server`.

    Raises EngineUnavailableError when the engine does not answer within `timeout` seconds, or is too old.
    """
    try:
        with closing(_Client(endpoint, "1.32", timeout)) as client:
            answer = client.get(f"{client.base_url}/_ping", timeout=timeout)
            answer.raise_for_status()
            version = answer.headers.get("Api-Version", "")
            server = str(answer.headers.get("Server", ""))
    except Exception as error:
        if not is_engine_fault(error):
            raise
        raise EngineUnavailableError(
            f"Docker Engine not reachable at {endpoint} (from {endpoint.source}): {find_cause(error)}",
            hint=hint_for(error),
        ) from error
    return DockerApi(endpoint, _api_version(version, endpoint)), server


def _api_version(version: str, endpoint: Endpoint) -> str:
    """Returns the newest version of the API that both sides speak."""
    try:
        theirs = tuple(int(part) for part in version.split("."))
    except ValueError:
        raise EngineUnavailableError(
            f"{endpoint} (from {endpoint.source}) answers, but not as a Docker Engine: no Api-Version in its answer",
            hint="check DOCKER_HOST and `docker context show`",
        ) from None
    if theirs < _OLDEST_API:
        raise EngineUnavailableError(
            f"the Docker Engine at {endpoint} speaks API {version}; imgtool needs 1.32 (Docker 17.09) or newer"
        )
    return min((version, DEFAULT_DOCKER_API_VERSION), key=lambda text: [int(part) for part in text.split(".")])


class _Client(docker.APIClient):
    """A docker-py client that ignores files and environment variables. The client sends one request at a time."""

    def __init__(self, endpoint: Endpoint, version: str, timeout: float | None) -> None:
        _knock(endpoint, timeout or _PING_SECONDS)
        tls: Any = False
        if endpoint.tls:
            pair = (str(endpoint.cert), str(endpoint.key)) if endpoint.cert else None
            ca = str(endpoint.ca) if endpoint.ca else None
            tls = docker.tls.TLSConfig(client_cert=pair, ca_cert=ca, verify=endpoint.verify)
        agent = f"training-imgtool/{__version__}"
        wait: Any = timeout  # None, for a stream, waits forever; the type stubs allow whole seconds only
        super().__init__(endpoint.url, version=version, timeout=wait, tls=tls, user_agent=agent)
        self.aborted = threading.Event()
        self.trust_env = False  # no .netrc, no proxy between here and the engine

    @property
    def _general_configs(self) -> dict[str, Any]:
        return {"proxies": {}}  # docker-py reads config.json if this is empty

    @_general_configs.setter
    def _general_configs(self, value: object) -> None:
        """Ignores the config.json that docker-py has read."""


def _knock(endpoint: Endpoint, timeout: float) -> None:
    """Raises OSError if no engine listens on the socket; docker-py would not close a socket that fails to connect."""
    if endpoint.url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(endpoint.url.removeprefix("unix://"))


class _Request:
    """One request whose answer is a stream; see `stream.Request`."""

    def __init__(self, client: _Client, send: Callable[[_Client], Iterable[Event]]) -> None:
        self._client = client
        self._send = send
        self._response: Any = None
        client.hooks["response"].append(self._note_answer)

    def _note_answer(self, response: Any, *args: object, **kwargs: object) -> None:
        del args, kwargs
        self._response = response
        if self._client.aborted.is_set():
            response.close()

    def events(self) -> Iterator[Event]:
        for event in self._send(self._client):
            if not isinstance(event, dict):
                raise EngineUnavailableError(f"the Docker Engine answered {str(event)[:200]!r}, which is not an event")
            yield event

    def abort(self) -> None:
        self._client.aborted.set()
        response = self._response
        if response is not None:
            with suppress(Exception):  # the response may have ended meanwhile
                response.raw.shutdown()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._client.close()


class DockerApi:
    """One engine's API: short requests, and streams. Thread-safe, because each request has its own connection."""

    def __init__(self, endpoint: Endpoint, version: str) -> None:
        self.endpoint = endpoint
        self.running = Running()
        self._version = version

    def answers(self) -> bool:
        """Returns whether the engine answers a ping."""
        try:
            with closing(_Client(self.endpoint, self._version, _PING_SECONDS)) as client:
                return bool(client.ping())
        except Exception as error:
            if not is_engine_fault(error):
                raise
            return False

    @contextmanager
    def ask(self, doing: str, *, refused: Callable[[str, int | None], ImgtoolError] | None = None) -> Iterator[Any]:
        """Opens a docker-py client for short requests; raises EngineUnavailableError if one fails.

        Args:
            doing: the purpose of the request, for messages.
            refused: makes the error when the engine refuses, from the engine's message and the status.
        """
        try:
            with closing(_Client(self.endpoint, self._version, _SHORT_SECONDS)) as client:
                yield client
        except Exception as error:
            if refused is not None and isinstance(error, docker.errors.APIError):
                raise refused(error.explanation or str(error), error.status_code) from error
            if isinstance(error, ImgtoolError) or not is_engine_fault(error):
                raise
            raise engine_error(doing, self.endpoint, error) from error

    def inspect(self, name: str) -> dict[str, Any] | None:
        """Returns what the engine reports about an image; None when the engine has no such image."""
        with self.ask(f"looking for the image {name}") as client, suppress(docker.errors.ImageNotFound):
            image: dict[str, Any] = client.inspect_image(name)
            return image
        return None

    @contextmanager
    def stream(
        self,
        send: Callable[[Any], Iterable[Event]],
        *,
        where: Callable[[], str],
        refused: Callable[[str, int | None], ImgtoolError],
    ) -> Iterator[Generator[Event, None, None]]:
        """Yields the events of one long request; the request ends when the block ends, or with `close`.

        Args:
            send: sends the request with a docker-py client (its event `aborted` ends it) and returns the events.
            where: the engine's current work, for messages.
            refused: makes the error of a failed answer, from the engine's message and the status.
        """
        try:
            with self.running.counted():
                request = _Request(_Client(self.endpoint, self._version, None), send)
                events = follow(
                    request,
                    where=where,
                    stopped=self.running.stopped,
                    answers=self.answers,
                    silence_seconds=SILENCE_SECONDS,
                )
                with closing(events):
                    yield events
        except docker.errors.APIError as error:
            raise refused(error.explanation or str(error), error.status_code) from error
        except Exception as error:
            if isinstance(error, ImgtoolError) or not is_engine_fault(error):
                raise
            raise engine_error(where(), self.endpoint, error) from error

    def close(self) -> None:
        """Ends every stream, and waits briefly until the connections are closed, so that the engine stops its work."""
        self.running.stop(_CLOSE_SECONDS)


def is_engine_fault(error: BaseException) -> bool:
    """Returns whether the engine or the connection caused an error; false for a mistake in imgtool."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _PACKAGES


def engine_error(doing: str, where: object, error: BaseException) -> EngineUnavailableError:
    """Returns the error for a request to the engine at `where` that failed; `doing` is the purpose of the request."""
    cause = find_cause(error)
    hint = FULL_HINT if is_full(cause) else hint_for(error)
    return EngineUnavailableError(f"{doing}: the Docker Engine at {where} failed: {cause}", hint=hint)


def find_cause(error: BaseException) -> str:
    """Returns the message of an error's innermost cause, in one line."""
    for inner in _inner(error):
        if isinstance(inner, TimeoutError) or "Timeout" in type(inner).__name__:
            return "no answer in time"
        if isinstance(inner, OSError) and inner.strerror and isinstance(inner.errno, int):
            return inner.strerror
        explanation = getattr(inner, "explanation", None)
        if isinstance(explanation, str) and explanation:
            return join_lines(explanation, limit=400)
        if type(inner).__name__ in _CUT or "invalid literal for int() with base 16" in str(inner):
            return "the connection ended in the middle of an answer"
    last = list(_inner(error))[-1]
    return join_lines(f"{type(last).__name__}: {last}", limit=400)


def hint_for(error: BaseException) -> str:
    """Returns the hint for an error."""
    numbers = {inner.errno for inner in _inner(error) if isinstance(inner, OSError)}
    if numbers & {errno.EACCES, errno.EPERM}:
        return "this user may not use the socket: add it to the group `docker` and log in again, or use sudo"
    return _START


def _inner(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and its causes, outermost first. Some libraries pass the cause as an argument of the error."""
    seen: list[BaseException] = []
    queue = [error]
    while queue and len(seen) < 20:
        current = queue.pop(0)
        if any(current is other for other in seen):
            continue
        seen.append(current)
        yield current
        queue += [part for part in current.args if isinstance(part, BaseException)]
        queue += [part for part in (current.__cause__, current.__context__) if part is not None]
