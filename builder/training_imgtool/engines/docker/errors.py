"""Why a request to the Docker Engine failed, in words: docker-py lets the errors of four packages through.

Killing the engine while it answers is `urllib3.exceptions.ProtocolError`, a refused socket `requests`' ConnectionError
around it, a page of HTML a `json.JSONDecodeError`; only what the engine itself says is `docker.errors.APIError`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from training_imgtool.core.errors import EngineUnavailableError
from training_imgtool.core.sanitize import join_lines
from training_imgtool.engines.docker.registry_errors import FULL_HINT, is_full

_PACKAGES = frozenset({"docker", "requests", "urllib3", "http", "json", "ssl"})
_CUT = frozenset({"IncompleteRead", "InvalidChunkLength"})  # of urllib3 and http.client
_START = "start it (for example `sudo systemctl start docker`), or point DOCKER_HOST or `docker context use` at one"


def is_engine_fault(error: BaseException) -> bool:
    """Returns whether the error came from talking to the engine, and not from a mistake in this program."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _PACKAGES


def engine_error(doing: str, where: object, error: BaseException) -> EngineUnavailableError:
    """Returns the error for an exchange with the engine at `where` that broke while `doing` something."""
    cause = find_cause(error)
    hint = FULL_HINT if is_full(cause) else hint_for(error)
    return EngineUnavailableError(f"{doing}: the Docker Engine at {where} failed: {cause}", hint=hint)


def find_cause(error: BaseException) -> str:
    """Finds the innermost reason, in one line: the system's words, the engine's, or the library's."""
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
    """Returns what to do about it."""
    numbers = {inner.errno for inner in _inner(error) if isinstance(inner, OSError)}
    if numbers & {errno.EACCES, errno.EPERM}:
        return "this user may not use the socket: add it to the group `docker` and log in again, or use sudo"
    return _START


def _inner(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and what it was made from, outermost first: libraries pass causes as arguments too."""
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
