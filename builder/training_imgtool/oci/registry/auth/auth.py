"""Makes the Authorization header of requests, with a token if the registry has a token server.

For a registry that accepts Basic authentication or a Google access token, imgtool sends no extra request. For a
registry with a token server, imgtool sends two extra requests at the first contact, and then keeps the token until
shortly before it expires (`expires_in` in distribution's token specification).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from training_imgtool.base.errors import CredentialsError, ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.base.http.addresses import Origin, next_url, origin_of, redact
from training_imgtool.base.http.client import SMALL, Answer, bytes_body
from training_imgtool.base.http.retry import PassingError
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.reference import Login
from training_imgtool.base.sanitize import join_lines
from training_imgtool.oci.registry.auth.challenges import Challenge, Scopes, parse_challenges, parse_scope, scope_texts
from training_imgtool.oci.registry.auth.logins import HostLogin, is_refresh_token
from training_imgtool.oci.registry.dialects import Dialect
from training_imgtool.oci.registry.failures import passing, server_text

_CLIENT = "imgtool"
_SHORTEST_LIFE = 60.0  # seconds; the token specification's default for a missing `expires_in`
_SHORTEST_KEPT = 30.0  # only a token that lasts at least so many seconds is kept in a file
_MARGIN = 10.0  # imgtool stops using a token so many seconds before it expires


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, its scopes, and its expiry (seconds since 1970); `stored` is true for a token from a file."""

    text: str
    scopes: Scopes
    expires: float
    stored: bool = False

    def __repr__(self) -> str:
        return f"Token({', '.join(sorted(self.scopes))}, expires={self.expires:.0f})"


class TokenStore:
    """Stores the tokens of one host in memory, and in files that only the files' owner can read.

    With a token on disk, the next process needs one request instead of three. A file's name is a hash. A file contains
    one token and the token's expiry. imgtool ignores a file whose mode is not 0600. Safe for threads.

    Args:
        host: the registry.
        folder: the folder for tokens that other processes may use.
        identity: further facts that a token depends on, such as the state of the login file; used only as a hash.
        now: the wall clock, in seconds since 1970.
    """

    def __init__(self, host: str, folder: Path, *, identity: str, now: Callable[[], float]) -> None:
        self._host = host
        self._folder = folder
        self._identity = identity
        self._now = now
        self._tokens: list[Token] = []
        self._lock = threading.Lock()

    def find(self, scopes: Scopes) -> Token | None:
        """Returns a valid token that covers `scopes`, or None."""
        with self._lock:
            held = [token for token in self._tokens if self._lasts(token)]
        covering = [token for token in held if scopes <= token.scopes]
        if covering:
            return covering[-1]
        for wider in dict.fromkeys((scopes, scopes | {f"{scope.rpartition(':')[0]}:push" for scope in scopes})):
            token = self._read(wider)
            if token is not None and self._lasts(token):
                with self._lock:
                    self._tokens.append(token)
                return token
        return None

    def add(self, token: Token) -> None:
        """Adds a token."""
        with self._lock:
            self._tokens = [held for held in self._tokens if self._lasts(held)] + [token]
        if token.expires - self._now() >= _SHORTEST_KEPT:
            self._write(token)

    def drop(self, text: str) -> None:
        """Forgets a token that the registry refused."""
        with self._lock:
            dropped = [token for token in self._tokens if token.text == text]
            self._tokens = [token for token in self._tokens if token.text != text]
        for token in dropped:
            with contextlib.suppress(OSError):
                self._file(token.scopes).unlink()

    def _lasts(self, token: Token) -> bool:
        return token.expires - _MARGIN > self._now()

    def _file(self, scopes: Scopes) -> Path:
        name = "\n".join((self._host, self._identity, *sorted(scopes)))
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:40]}.json"

    def _read(self, scopes: Scopes) -> Token | None:
        try:
            document = read_cached(self._file(scopes))
            return Token(str(document["token"]), scopes, float(document["expires"]), stored=True)
        except (ValueError, KeyError, TypeError):
            return None

    def _write(self, token: Token) -> None:
        """Stores a token in a file, if possible. Without the file, the next process needs two more requests."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_cached(self._file(token.scopes), {"token": token.text, "expires": token.expires}, mode=0o600)


class Authorizer:
    """Makes Authorization headers for one registry. Safe for threads.

    Args:
        host: the registry, for messages.
        dialect: the registry's peculiarities.
        origin: the registry's address. Credentials go only there and to its token server.
        login: finds the login.
        tokens: keeps tokens.
        send: `Client.send`, to ask the token server.
        now: the wall clock, in seconds since 1970.
    """

    def __init__(
        self,
        host: str,
        dialect: Dialect,
        origin: Origin,
        *,
        login: HostLogin,
        tokens: TokenStore,
        send: Callable[..., Answer],
        now: Callable[[], float],
    ) -> None:
        self._host = host
        self._dialect = dialect
        self.origin = origin
        self._login = login
        self._tokens = tokens
        self._send = send
        self._now = now
        self._bearer: Challenge | None = None  # the token server, after the registry has named it
        self._lock = threading.Lock()

    def header(self, scopes: Scopes) -> str | None:
        """Returns the header's value for a request that needs `scopes`, or None for an anonymous first try."""
        token = self._tokens.find(scopes)
        if token:
            return f"Bearer {token.text}"
        if self._bearer:
            return f"Bearer {self._exchange(self._bearer, scopes, refused=None).text}"
        if self._dialect.asks_first:
            return None
        login = self._login.login()
        if login is None or is_refresh_token(login):
            return None
        return _basic(login)

    def learn(self, answer: Answer) -> bool:
        """Stores the token server that the answer to an anonymous request names; returns whether one is known."""
        bearer = token_server(answer) if answer.status == 401 else None
        with self._lock:
            self._bearer = self._bearer or bearer
        return self._bearer is not None

    def answer_challenge(self, answer: Answer, sent: str | None, scopes: Scopes) -> str:
        """Returns the header for another try after a 401.

        Args:
            answer: the 401.
            sent: the refused header.
            scopes: the scopes that the request needs.

        Raises:
            CredentialsError: there is no login, or the registry does not accept it.
            RegistryRefusedError: the login may not do this.
        """
        bearer = token_server(answer)
        if bearer is None:
            offers = parse_challenges(answer.challenges)
            if sent is None and (login := self._login.login()) and any(c.scheme == "basic" for c in offers):
                return _basic(login)
            raise self._refusal_error(answer)
        refused = sent.removeprefix("Bearer ") if sent and sent.startswith("Bearer ") else None
        wanted = scopes | parse_scope(bearer.parameters.get("scope", ""))
        if refused and bearer.parameters.get("error") == "insufficient_scope" and wanted == scopes:
            held = self._tokens.find(scopes)
            if held is None or not held.stored:
                raise self._too_little(answer)
        self._bearer = bearer
        return f"Bearer {self._exchange(bearer, wanted, refused=refused).text}"

    def refused_twice(self, answer: Answer) -> ImgtoolError:
        """Makes the error for a second 401 in a row."""
        offers = parse_challenges(answer.challenges)
        if any(c.parameters.get("error") == "insufficient_scope" for c in offers):
            return self._too_little(answer)
        return self._refusal_error(answer)

    def describe_login(self) -> tuple[bool, str]:
        """Returns whether there is a login, and the login's source or the places where imgtool looked for a login."""
        search = self._login.search()
        return search.source is not None, search.name if search.source else ", ".join(search.tried)

    def _exchange(self, bearer: Challenge, scopes: Scopes, *, refused: str | None) -> Token:
        with self._lock:  # a single token request for all threads
            if refused:
                self._tokens.drop(refused)
            held = self._tokens.find(scopes)
            if held:
                return held
            realm = self._checked_realm(bearer.parameters["realm"])
            try:
                token = self._read(self._request(realm, bearer, scopes), scopes)
            except TemporaryError as error:
                message = f"{self._host} cannot be logged in to: its token server {redact(realm)}: {error.message}"
                raise TemporaryError(message, hint=error.hint) from error
            except PassingError as error:
                error.reason = f"cannot be logged in to: its token server {redact(realm)} {error.reason}"
                raise
            self._tokens.add(token)
            return token

    def _request(self, realm: str, bearer: Challenge, scopes: Scopes) -> Answer:
        service = bearer.parameters.get("service", "")
        login = self._login.login()
        if login and is_refresh_token(login):
            form = {"grant_type": "refresh_token", "service": service, "client_id": _CLIENT}
            form |= {"scope": " ".join(scope_texts(scopes)), "refresh_token": login.password}
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            return self._send("POST", realm, headers=headers, body=bytes_body(urlencode(form).encode()))
        query = [("service", service)] if service else []
        query += [("scope", text) for text in scope_texts(scopes)]
        if login:
            query.append(("account", login.username))
        join = "&" if urlsplit(realm).query else "?"
        headers = {"Authorization": _basic(login)} if login else {}
        return self._send("GET", f"{realm}{join}{urlencode(query)}", headers=headers)

    def _checked_realm(self, realm: str) -> str:
        what = f"logging in to {self._host}"
        if not realm.startswith(("http://", "https://")):
            raise RegistryRefusedError(f"{what}: the registry names a token server that is not an http or https URL")
        return next_url(self.origin.url, realm, self.origin, what)

    def _read(self, answer: Answer, scopes: Scopes) -> Token:
        server = redact(origin_of(answer.url).url)
        if answer.status in {400, 401, 403}:
            raise self._refusal_error(answer, server=server)
        again = passing(answer, self._now())
        if again:
            raise again
        if answer.status != 200 or not answer.complete:
            actual = f"HTTP {answer.status}" if answer.complete else f"more than {SMALL} bytes"
            raise RegistryRefusedError(
                f"logging in to {self._host}: the token server {server} answered {actual}",
                hint="if the login in Docker's configuration is an identity token, log in with a password or an "
                f"access token instead: `docker login {self._host}`",
            )
        try:
            document: dict[str, Any] = json.loads(answer.body)
            text = document.get("token") or document.get("access_token")
            life = float(document.get("expires_in") or _SHORTEST_LIFE)
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise self._unreadable(server) from error
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise self._unreadable(server)
        return Token(text, scopes, self._now() + min(max(life, 0.0), 86400.0))

    def _unreadable(self, server: str) -> RegistryRefusedError:
        return RegistryRefusedError(f"logging in to {self._host}: the token server {server} sent no token")

    def _refusal_error(self, answer: Answer, server: str | None = None) -> CredentialsError:
        has_login, where = self.describe_login()
        said = server_text(answer)
        says = f"; the server says: {said}" if said else ""
        by = f" by its token server {server}" if server else ""
        hint = self._dialect.login_hint
        if has_login and re.search(r"\bpull\b", said):
            hint = "the account needs the right to pull as well as to push: imgtool looks for existing images first"
        if has_login:
            message = (
                f"{self._host}: the login from {join_lines(where)} was not accepted{by} (HTTP {answer.status}){says}"
            )
        else:
            message = f"{self._host} wants a login and there is none; imgtool looked at: {join_lines(where, 600)}{says}"
        return CredentialsError(message, hint=hint.format(host=self._host))

    def _too_little(self, answer: Answer) -> ImgtoolError:
        has_login, _ = self.describe_login()
        if not has_login:
            error = self._refusal_error(answer)
            error.hint = f"{error.hint}; or check the name, as registries answer the same for missing repositories"
            return error
        said = server_text(answer)
        return RegistryRefusedError(
            f"{self._host}: the login may not do this (HTTP {answer.status}, insufficient scope)"
            + (f"; the server says: {said}" if said else ""),
            hint=self._dialect.denied_hint.format(host=self._host),
        )


def token_server(answer: Answer) -> Challenge | None:
    """Returns the challenge that names a token server, or None if the answer contains no such challenge."""
    offers = parse_challenges(answer.challenges)
    return next((c for c in offers if c.scheme == "bearer" and c.parameters.get("realm")), None)


def _basic(login: Login) -> str:
    return f"Basic {base64.b64encode(f'{login.username}:{login.password}'.encode()).decode()}"
