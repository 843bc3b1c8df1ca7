"""A token server for docker-registry (distribution's token specification): users, rights, lifetimes, a log.

Tokens are JWTs signed with ES256; the `kid` is libtrust's id of the key (base32 of the first 30 bytes of
the SHA-256 of its DER, in groups of four).
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.servers.json_handler import JsonHandler
from tests.servers.running import Running

SERVICE = "test-registry"
ISSUER = "test-issuer"


@dataclass
class TokenRequest:
    """One request for a token: who asked, for what."""

    method: str
    user: str
    scopes: list[str]
    form: dict[str, list[str]] = field(default_factory=dict)


class TokenServer(Running):
    """Hands out tokens.

    Args:
        certificate: PEM of the signing key, which the registry trusts.
        key: PEM of that key.
        users: passwords by name.
        rights: actions that each user may have everywhere; "" is anonymous.
        lifetime: seconds that `expires_in` says.
        age: how many seconds ago the tokens were made, really; docker-registry allows 60 s of leeway.
    """

    def __init__(self, certificate: Path, key: Path, users: dict[str, str]) -> None:
        self.certificate = certificate
        self.users = users
        self.rights: dict[str, set[str]] = {"": set(), **{user: {"pull", "push"} for user in users}}
        self.refresh_tokens: dict[str, str] = {}
        self.lifetime = 300
        self.age = 0
        self.status = 200
        self.requests: list[TokenRequest] = []
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded
        server = _Server(("127.0.0.1", 0), _Handler)
        server.tokens = self
        super().__init__(server)

    @property
    def realm(self) -> str:
        """The URL that tokens come from."""
        return f"http://{self.host}/token"

    def registry_auth(self) -> str:
        """The `auth:` section for a docker-registry that trusts this server."""
        return "\n".join(
            [
                "auth:",
                "  token:",
                f"    realm: {self.realm}",
                f"    service: {SERVICE}",
                f"    issuer: {ISSUER}",
                f"    rootcertbundle: {self.certificate}",
            ]
        )

    def token(self, user: str, scopes: list[str]) -> str:
        """A signed token with as much of `scopes` as the user may have."""
        der = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = base64.b32encode(hashlib.sha256(der).digest()[:30]).decode().rstrip("=")
        kid = ":".join(digest[i : i + 4] for i in range(0, len(digest), 4))
        now = int(time.time()) - self.age
        claims = {"iss": ISSUER, "sub": user, "aud": SERVICE, "exp": now + self.lifetime, "nbf": now - 5, "iat": now}
        claims |= {"jti": f"{time.monotonic_ns()}", "access": self._access(user, scopes)}
        signed = f"{_b64(json.dumps({'typ': 'JWT', 'alg': 'ES256', 'kid': kid}))}.{_b64(json.dumps(claims))}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def _access(self, user: str, scopes: list[str]) -> list[dict[str, Any]]:
        allowed = []
        for scope in scopes:
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            granted = [action for action in actions.split(",") if action in self.rights.get(user, set())]
            allowed.append({"type": kind, "name": name, "actions": granted})
        return allowed


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tokens: TokenServer


class _Handler(JsonHandler, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        user, password = self._basic()
        self.server.tokens.requests.append(TokenRequest("GET", user, query.get("scope", [])))
        known = self.server.tokens.users.get(user)
        self._give(user, query.get("scope", []), allowed=not user or known == password)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers.get("content-length", 0))).decode())
        scopes = form.get("scope", [""])[0].split()
        user = self.server.tokens.refresh_tokens.get(form.get("refresh_token", [""])[0], "")
        self.server.tokens.requests.append(TokenRequest("POST", user, scopes, form))
        self._give(user, scopes, allowed=bool(user))

    def _basic(self) -> tuple[str, str]:
        header = self.headers.get("authorization", "")
        if not header.startswith("Basic "):
            return "", ""
        user, _, password = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
        return user, password

    def _give(self, user: str, scopes: list[str], *, allowed: bool) -> None:
        tokens = self.server.tokens
        status = tokens.status if tokens.status != 200 else 200 if allowed else 401
        document: dict[str, Any] = {"details": "incorrect username or password"}
        if status == 200:
            document = {"token": tokens.token(user, scopes), "expires_in": tokens.lifetime}
        self.answer(status, document)


def _b64(data: str | bytes) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
