"""One try of one request to a registry: credentials, redirects, and which answers are worth another try.

`Session.retry.run` is the retry layer above this. Nothing here waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from training_imgtool.core.errors import CredentialsError, ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.http.addresses import REDIRECTS, Origin, next_url, origin_of, speaks_http
from training_imgtool.http.client import SMALL, Answer, Body, Download, Transport
from training_imgtool.http.retry import PassingError, Retry
from training_imgtool.registry.auth.auth import Authorizer, token_server
from training_imgtool.registry.auth.challenges import Scopes
from training_imgtool.registry.dialects import api_host
from training_imgtool.registry.failures import login_hint, make_error, passing, server_errors

_MOVED_READ = frozenset({301, 302, 303, 307, 308})
_MOVED_WRITE = frozenset({307, 308})
_PAST_LOGIN = ("BLOB_", "DIGEST_", "MANIFEST_", "NAME_", "SIZE_", "TAG_")  # codes of requests that the login allowed
_TLS_WANTED = (b"http request to an https server", b"plain http request was sent to https")


def origin_for(host: str, insecure: tuple[str, ...]) -> Origin:
    """Where a registry's API answers: https, except for loopback and the hosts the user lists."""
    scheme = "http" if speaks_http(host, insecure) else "https"
    try:
        return origin_of(f"{scheme}://{api_host(host)}")
    except ValueError as error:
        raise RegistryRefusedError(f"{host!r} is not a registry host: its port is wrong") from error


class Session:
    """Requests to one registry. Safe for threads.

    Args:
        host: the registry as references name it.
        transport: sends.
        authorizer: makes the authorizer for an origin, which changes when a registry on loopback turns out to want TLS.
        insecure: hosts that the user lists as speaking plain HTTP.
        retry: the policy.
        progress: receives a note of each wait.
        now: the wall clock.
    """

    def __init__(
        self,
        host: str,
        *,
        transport: Transport,
        authorizer: Callable[[Origin], Authorizer],
        insecure: tuple[str, ...],
        retry: Retry,
        progress: Progress,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.host = host
        self.retry = retry
        self.progress = progress
        self._transport = transport
        self._make_authorizer = authorizer
        self._listed = host in insecure
        self._now = now
        self.origin = origin_for(host, insecure)
        self._authorizer = authorizer(self.origin)
        self._answered = False
        self.software: str | None = None  # see `Registry.software`
        self._asking = threading.Lock()
        self._takes_token: bool | None = None

    def url(self, repository: Repository, rest: str, query: Mapping[str, str] | None = None) -> str:
        """The URL of something in a repository; raises ValueError when the repository is another registry's."""
        if repository.registry != self.host:
            raise ValueError(f"{repository} is not in {self.host}")
        text = f"{self.origin.url}/v2/{repository.path}/{rest}"
        return f"{text}?{urlencode(query)}" if query else text

    def notice(self, text: str) -> None:
        """Notes something that is not a step."""
        self.progress(Note(text))

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
    ) -> Answer:
        """One try, redirects followed and a 401 answered; `seconds` shortens the transport's limits.

        Raises:
            PassingError: the request is worth another try.
            CredentialsError, RegistryRefusedError, TemporaryError: it is not.
        """

        def go(target: str, extra: Mapping[str, str]) -> Answer:
            sent = {**(headers or {}), **extra}
            return self._transport.send(method, target, headers=sent, body=body, limit=limit, seconds=seconds)

        answer = self._follow(method, url, scopes, doing, go)
        self._raise_passing(answer)
        if "/manifests/" in url:
            self.software = _software(answer.headers)
        return answer

    def download(self, url: str, *, scopes: Scopes, doing: str, headers: Mapping[str, str] | None = None) -> Download:
        """One try of a GET whose content is read by the caller; raises as `send`, and unless 200 or 206."""
        opened: list[Download] = []

        def go(target: str, extra: Mapping[str, str]) -> Answer:
            download = self._transport.open("GET", target, headers={**(headers or {}), **extra}, reading=True)
            if download.answer.status in {200, 206}:
                opened.append(download)
                return download.answer
            return _small(download)

        answer = self._follow("GET", url, scopes, doing, go)
        if opened:
            return opened[0]
        self._raise_passing(answer)
        raise self.refusal(answer, doing)

    def refusal(self, answer: Answer, doing: str) -> ImgtoolError:
        """The error for a final answer that is not a success."""
        if answer.status == 403:
            has_login, where = self._authorizer.describe_login()
            if not has_login:
                return CredentialsError(
                    f"{doing}: refused (HTTP 403 from {self.host}) and there is no login; looked at: {where}",
                    hint=login_hint(self.host),
                )
        return make_error(answer, host=self.host, doing=doing)

    def _raise_passing(self, answer: Answer) -> None:
        again = passing(answer, self._now())
        if again:
            raise again

    def _follow(
        self, method: str, url: str, scopes: Scopes, doing: str, go: Callable[[str, Mapping[str, str]], Answer]
    ) -> Answer:
        moved = _MOVED_READ if method in {"GET", "HEAD"} else _MOVED_WRITE
        for _ in range(REDIRECTS + 1):
            answer = self._send_authorized(url, scopes, go)
            location = answer.headers.get("location")
            if answer.status not in moved or not location:
                return answer
            url = next_url(url, location, self.origin, doing)
        raise RegistryRefusedError(f"{doing}: redirected more than {REDIRECTS} times")

    def _send_authorized(self, url: str, scopes: Scopes, go: Callable[[str, Mapping[str, str]], Answer]) -> Answer:
        url, plain = self._use_origin_scheme(url), self.origin.scheme == "http" and not self._listed
        if origin_of(url) != self.origin:
            return go(url, {})  # storage on another host or port: our credentials are not for it
        sent = self._authorizer.header(scopes)
        try:
            answer = go(url, {"Authorization": sent} if sent else {})
        except PassingError:
            if not (plain and self._speaks_tls()):
                raise
            return self._send_authorized(url, scopes, go)
        self._answered = True
        if plain and self._wants_tls(answer):
            return self._send_authorized(url, scopes, go)
        if sent and sent.startswith("Basic ") and self._wants_token(answer):
            sent = self._authorizer.header(scopes)
            answer = go(url, {"Authorization": sent} if sent else {})
        if answer.status != 401:
            return answer
        sent = self._authorizer.answer_challenge(answer, sent, scopes)
        answer = go(url, {"Authorization": sent})
        if answer.status == 401:
            raise self._authorizer.refused_twice(answer)
        return answer

    def _use_origin_scheme(self, url: str) -> str:
        """The URL with the scheme that the registry wants by now."""
        if self.origin.scheme == "https" and url.startswith("http://"):
            plain = origin_of(url)
            if (plain.host, plain.port) == (self.origin.host, self.origin.port):
                return f"https://{url.removeprefix('http://')}"
        return url

    def _wants_token(self, answer: Answer) -> bool:
        """Whether a registry that refused a login has a token server, which it names to anonymous clients only.

        Sends one anonymous `GET /v2/`, which the specification has for that.
        """
        if answer.status not in {400, 401, 403} or token_server(answer):
            return False
        if any(error.code.startswith(_PAST_LOGIN) for error in server_errors(answer)):
            return False
        with self._asking:
            if self._takes_token is None:
                anonymous = self._transport.send("GET", f"{self.origin.url}/v2/", headers={})
                self._takes_token = self._authorizer.learn(anonymous)
            return self._takes_token

    def _wants_tls(self, answer: Answer) -> bool:
        """Whether a registry on this machine wants TLS; the session uses TLS from then on.

        Go's and nginx's servers answer a plain request with a 400 that says so; for those that hang up see
        `_speaks_tls`. An answer to HEAD has no text, so a GET asks again.
        """
        if answer.status != 400 or not answer.url.startswith("http:"):
            return False
        if self.origin.scheme == "https":  # another thread noticed meanwhile
            return True
        if answer.method == "HEAD":
            answer = self._transport.send("GET", f"{self.origin.url}/v2/", headers={})
        if answer.status != 400 or not any(words in answer.body.lower() for words in _TLS_WANTED):
            return False
        self._use_tls()
        return True

    def _speaks_tls(self) -> bool:
        """Whether a registry on this machine that hung up on plain requests, and never answered one, speaks TLS.

        Raises RegistryRefusedError for a certificate that imgtool does not trust.
        """
        if self.origin.scheme == "https":  # another thread noticed meanwhile
            return True
        if self._answered:
            return False
        try:
            self._transport.send("GET", f"https://{self.origin.url.removeprefix('http://')}/v2/", headers={})
        except (PassingError, TemporaryError):
            return False
        except RegistryRefusedError as error:
            if "does not speak TLS" in error.message:
                return False
            raise
        self._use_tls()
        return True

    def _use_tls(self) -> None:
        self.origin = Origin("https", self.origin.host, self.origin.port)
        self._authorizer = self._make_authorizer(self.origin)


def manifest_url(session: Session, ref: Tag | Digest) -> str:
    """The URL of a manifest."""
    name = ref.name if isinstance(ref, Tag) else ref.digest
    return session.url(ref.repository, f"manifests/{name}")


def _software(headers: Mapping[str, str]) -> str:
    """The headers that change with a registry's software or its version, as one text."""
    names = sorted(name for name in headers if name == "server" or "version" in name)
    return "; ".join(f"{name}: {headers[name]}" for name in names)[:500]


def _small(download: Download) -> Answer:
    """A refused download's answer, with the start of its text."""
    try:
        content = b""
        for block in download.blocks():
            content += block
            if len(content) > SMALL:
                break
    finally:
        download.close()
    answer = download.answer
    return Answer(answer.method, answer.url, answer.status, answer.headers, answer.challenges, content[:SMALL])
