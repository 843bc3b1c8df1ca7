"""Sends requests with a login to a registry, follows redirects, and decides after which answers to try again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from urllib.parse import urlencode

from training_imgtool.base.errors import CredentialsError, ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.base.http.addresses import REDIRECTS, Origin, next_url, origin_of, speaks_http
from training_imgtool.base.http.client import SMALL, Answer, Body, Client
from training_imgtool.base.http.retry import Attempt, PassingError, Retry
from training_imgtool.base.progress import Note, Progress
from training_imgtool.base.reference import Digest, Repository, Tag
from training_imgtool.oci.registry.auth.auth import Authorizer, token_server
from training_imgtool.oci.registry.auth.challenges import Scopes
from training_imgtool.oci.registry.dialects import ALLOWED_BY_LOGIN, Dialect
from training_imgtool.oci.registry.failures import make_error, passing, server_errors, server_text

_MOVED_READ = frozenset({301, 302, 303, 307, 308})
_MOVED_WRITE = frozenset({307, 308})
_REFUSED = frozenset({400, 401, 403})


class Session:
    """Requests to one registry. Safe for threads.

    Args:
        host: the registry's host as in references.
        dialect: the registry's peculiarities.
        client: sends requests.
        authorizer: makes the Authorization headers.
        origin: the address of the API. For a registry on loopback, it may change to https.
        guesses: whether `origin` is plain HTTP only because it is on loopback, not because the user chose it.
        retry: the policy for retries.
        progress: receives a note about each wait.
        now: the wall clock.
    """

    def __init__(
        self,
        host: str,
        *,
        dialect: Dialect,
        client: Client,
        authorizer: Authorizer,
        origin: Origin,
        guesses: bool,
        retry: Retry,
        progress: Progress,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.host = host
        self.dialect = dialect
        self.origin = origin
        self.retry = retry
        self._progress = progress
        self._client = client
        self._authorizer = authorizer
        self._now = now
        self._guessed = f"{origin.url}/" if guesses else None  # until the registry has answered a plain request
        self._asking = threading.Lock()
        self._takes_token: bool | None = None

    def url(self, repository: Repository, rest: str, query: Mapping[str, str] | None = None) -> str:
        """Makes a URL in a repository; raises ValueError if the repository belongs to another registry."""
        if repository.registry != self.host:
            raise ValueError(f"{repository} is not in the registry {self.host}")
        text = f"{self.origin.url}/v2/{repository.path}/{rest}"
        return f"{text}?{urlencode(query)}" if query else text

    def attempts(self) -> Iterator[Attempt]:
        """Yields the attempts of one operation, as `Retry.attempts` does."""
        return self.retry.attempts(self.host, lambda text: self._progress(Note(text)))

    def send(
        self,
        method: str,
        url: str,
        *,
        scopes: Scopes,
        doing: str,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        limit: int = SMALL,
        seconds: float | None = None,
        stream: bool = False,
    ) -> Answer:
        """Sends a request, follows redirects, and logs in after a 401; the arguments are those of `Client.send`.

        A streamed answer has the status 200 or 206. imgtool sends no login to another host or port.

        Raises:
            PassingError: another try may succeed.
            CredentialsError, RegistryRefusedError, TemporaryError: another try would fail, too.
        """
        moved = _MOVED_READ if method in {"GET", "HEAD"} else _MOVED_WRITE
        send = partial(self._client.send, method, body=body, limit=limit, seconds=seconds, stream=stream)
        target = url
        for _ in range(REDIRECTS + 1):
            origin = self.origin
            if self._guessed and origin.scheme == "https" and target.startswith(self._guessed):
                target = f"{origin.url}/{target.removeprefix(self._guessed)}"
            is_own = origin_of(target) == origin
            login = self._authorizer.header(scopes) if is_own else None
            try:
                answer = send(target, headers=_with_login(headers, login))
            except PassingError:
                if is_own and self._wants_tls(origin):
                    continue
                raise
            if is_own and answer.status in _REFUSED:
                if answer.status == 400 and self._wants_tls(origin):
                    continue
                answer = self._log_in(partial(send, target), headers, answer, login, scopes)
            elif is_own and origin.scheme == "http":
                self._guessed = None
            location = answer.headers.get("location")
            if answer.status not in moved or not location:
                return self._check(answer, doing, stream=stream)
            target = next_url(target, location, self.origin, doing)
        raise RegistryRefusedError(f"{doing}: redirected more than {REDIRECTS} times")

    def refusal(self, answer: Answer, doing: str) -> ImgtoolError:
        """Makes the error for an answer that is final but not a success."""
        if answer.status == 403:
            has_login, where = self._authorizer.describe_login()
            if not has_login:
                says = f"; the server says: {said}" if (said := server_text(answer)) else ""
                return CredentialsError(
                    f"{doing}: refused (HTTP 403 from {self.host}) and there is no login; imgtool looked at: "
                    f"{where}{says}",
                    hint=self.dialect.login_hint.format(host=self.host),
                )
        return make_error(answer, host=self.host, dialect=self.dialect, doing=doing)

    def _check(self, answer: Answer, doing: str, *, stream: bool) -> Answer:
        """Returns a final answer; raises PassingError for others. If `stream` is true, raises errors for refusals."""
        again = passing(answer, self._now())
        if again:
            raise again
        if stream and answer.response is None:
            raise self.refusal(answer, doing)
        return answer

    def _log_in(
        self,
        send: Callable[..., Answer],
        headers: Mapping[str, str] | None,
        answer: Answer,
        login: str | None,
        scopes: Scopes,
    ) -> Answer:
        """Repeats a refused request with the login that the registry asks for; returns the last answer."""
        if login and login.startswith("Basic ") and self._has_token_server(answer):
            login = self._authorizer.header(scopes)
            answer = send(headers=_with_login(headers, login))
        if answer.status != 401:
            return answer
        login = self._authorizer.answer_challenge(answer, login, scopes)
        answer = send(headers=_with_login(headers, login))
        if answer.status == 401 and answer.method == "HEAD":  # an answer to HEAD has no message
            answer = self._client.send("GET", answer.url, headers=_with_login(headers, login))
        if answer.status == 401:
            raise self._authorizer.refused_twice(answer)
        return answer

    def _has_token_server(self, answer: Answer) -> bool:
        """Finds out whether a registry that refused a login has a token server.

        Registries name their token server to anonymous clients. So imgtool sends one anonymous `GET /v2/`, which the
        specification defines for such questions.
        """
        if token_server(answer) or any(error.code.startswith(ALLOWED_BY_LOGIN) for error in server_errors(answer)):
            return False
        with self._asking:
            if self._takes_token is None:
                anonymous = self._client.send("GET", f"{self.origin.url}/v2/", headers={})
                self._takes_token = self._authorizer.learn(anonymous)
            return self._takes_token

    def _wants_tls(self, origin: Origin) -> bool:
        """Finds out whether a registry on loopback speaks TLS, after the registry did not accept a request without TLS.

        If so, the session uses TLS for all later requests. Sends nothing if the registry has answered a request without
        TLS. Raises RegistryRefusedError for a certificate that imgtool does not trust.
        """
        if self._guessed is None or origin.scheme == "https":
            return False
        with self._asking:
            if self.origin != origin:  # another thread has found out
                return True
            secure = Origin("https", origin.host, origin.port)
            try:
                self._client.send("GET", f"{secure.url}/v2/", headers={})
            except (PassingError, TemporaryError):
                return False
            except RegistryRefusedError as error:
                if "does not speak TLS" in error.message:
                    return False
                raise
            self.origin = self._authorizer.origin = secure
            return True


def find_origin(host: str, dialect: Dialect, insecure: tuple[str, ...]) -> Origin:
    """Returns the address of a registry's API, with https except for loopback and for hosts that the user lists."""
    scheme = "http" if speaks_http(host, insecure) else "https"
    try:
        return origin_of(f"{scheme}://{dialect.api_host or host}")
    except ValueError as error:
        raise RegistryRefusedError(f"{host!r} is not a registry host: its port is wrong") from error


def manifest_url(session: Session, ref: Tag | Digest) -> str:
    """Makes the URL of a manifest."""
    name = ref.name if isinstance(ref, Tag) else ref.digest
    return session.url(ref.repository, f"manifests/{name}")


def _with_login(headers: Mapping[str, str] | None, login: str | None) -> dict[str, str]:
    return {**(headers or {}), **({"Authorization": login} if login else {})}
