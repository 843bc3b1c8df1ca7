"""Challenges and token servers that misbehave, against scripted servers."""

from __future__ import annotations

import base64
import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.oci.registry.support import clients, machine
from tests.servers.registry_process import free_port
from tests.servers.scripted import Asked, Reply, ScriptedServer
from training_imgtool.base.errors import CredentialsError, ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.base.http.addresses import Origin
from training_imgtool.base.http.client import Answer
from training_imgtool.base.reference import Login, parse_repository
from training_imgtool.base.threads import run_all
from training_imgtool.oci.registry.auth.auth import Authorizer, Token, TokenStore
from training_imgtool.oci.registry.auth.challenges import pull
from training_imgtool.oci.registry.auth.logins import FoundLogin, HostLogin
from training_imgtool.oci.registry.dialects import find_dialect

DIGEST = f"sha256:{'1' * 64}"
FOUND = Reply(200, b"", {"Docker-Content-Digest": DIGEST})


def _registry(*challenges: str) -> ScriptedServer:
    """A registry that takes `Bearer good`, or Basic ann:pw where it offers no Bearer."""
    takes_basic = not any("bearer" in challenge.lower() for challenge in challenges)

    def reply(asked: Asked) -> Reply:
        basic = f"Basic {base64.b64encode(b'ann:pw').decode()}"
        if asked.headers.get("authorization") in {"Bearer good", basic if takes_basic else "Bearer good"}:
            return FOUND
        words = b"" if asked.method == "HEAD" else b"unauthorized to access repository: a/b, action: pull"
        return Reply(401, words, {"WWW-Authenticate": ", ".join(challenges)})

    return ScriptedServer(reply)


def _log_in(folder: Path, host: str) -> None:
    (folder / ".docker").mkdir(exist_ok=True)
    auth = {"auth": base64.b64encode(b"ann:pw").decode()}
    (folder / ".docker/config.json").write_text(json.dumps({"auths": {host: auth}}))


def _ask(server: ScriptedServer, folder: Path, *, login: bool = True) -> str | None:
    if login:
        _log_in(folder, server.host)
    repository = parse_repository(f"{server.host}/a/b")
    with clients(machine(folder)) as registries:
        return registries.at(repository).head(repository.tag("c"))


def _json(document: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


def test_a_login_is_sent_before_it_is_asked_for(tmp_path: Path) -> None:
    with _registry('Basic realm="x"') as server:
        assert _ask(server, tmp_path) == DIGEST
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "challenges",
    [
        ('Basic realm="x"', 'Bearer realm="{}",service="s"'),
        ('Bearer realm="{}",service="s"', 'Basic realm="x"'),
        ("Negotiate", 'bearer REALM="{}"'),
        ('Bearer realm="{}?kept=1",scope="repository:a/b:pull"',),
    ],
)
def test_r24_bearer_is_taken_among_several(tmp_path: Path, challenges: tuple[str, ...]) -> None:
    with ScriptedServer([_json({"token": "good"})]) as tokens:
        realm = f"http://{tokens.host}/token"
        with _registry(*(challenge.replace("{}", realm) for challenge in challenges)) as server:
            assert _ask(server, tmp_path, login=False) == DIGEST
        (asked,) = tokens.asked
        assert "scope=repository%3Aa%2Fb%3Apull" in asked.target
        assert asked.target.count("?") == 1


@pytest.mark.parametrize(
    "document",
    [
        {"token": "good"},
        {"access_token": "good"},
        {"token": "good", "access_token": "x"},
        {"token": "good", "expires_in": 0},
    ],
)
def test_r24_forms_of_a_tokens_answer(tmp_path: Path, document: dict[str, object]) -> None:
    with ScriptedServer([_json(document)]) as tokens, _registry(f'Bearer realm="http://{tokens.host}/"') as server:
        assert _ask(server, tmp_path, login=False) == DIGEST


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(200, b"x" * 10_000_000), "more than 65536 bytes"),
        (Reply(200, b"<html>"), "sent no token"),
        (_json({}), "sent no token"),
        (_json({"token": "a\nInjected: header"}), "sent no token"),
        (_json({"token": "x", "expires_in": "soon"}), "sent no token"),
        (Reply(302, b"", {"Location": "http://elsewhere.example/"}), "HTTP 302"),
    ],
)
def test_r24_a_token_server_that_answers_nonsense(tmp_path: Path, reply: Reply, says: str) -> None:
    with ScriptedServer([reply]) as tokens, _registry(f'Bearer realm="http://{tokens.host}/"') as server:
        with pytest.raises(RegistryRefusedError, match=says) as caught:
            _ask(server, tmp_path)
        assert len(tokens.asked) == 1
        assert tokens.host in str(caught.value)


def test_a_token_server_that_takes_no_identity_token(tmp_path: Path) -> None:
    with ScriptedServer([Reply(405)]) as tokens, _registry(f'Bearer realm="http://{tokens.host}/"') as server:
        (tmp_path / ".docker").mkdir()
        login = {"identitytoken": "t", "auth": base64.b64encode(b"ann:").decode()}
        (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {server.host: login}}))
        with pytest.raises(RegistryRefusedError, match="answered HTTP 405") as caught:
            _ask(server, tmp_path, login=False)
        assert [asked.method for asked in tokens.asked] == ["POST"]
    assert f"`docker login {server.host}`" in (caught.value.hint or "")


@pytest.mark.parametrize("status", [400, 401, 403])
def test_r1_a_token_server_that_refuses(tmp_path: Path, status: int) -> None:
    reply = _json({"errors": [{"code": "DENIED", "message": "no\u001b[31m such user"}]}, status)
    with ScriptedServer([reply]) as tokens, _registry(f'Bearer realm="http://{tokens.host}/"') as server:
        with pytest.raises(CredentialsError, match="the server says: DENIED: no such user"):
            _ask(server, tmp_path)
        assert (len(server.asked), len(tokens.asked)) == (1, 1)


@pytest.mark.parametrize("challenge", ["", "Negotiate", 'Bearer service="no realm"', "=,=", 'Bearer realm=""'])
def test_r24_a_challenge_that_cannot_be_met(tmp_path: Path, challenge: str) -> None:
    with _registry(challenge) as server:
        with pytest.raises(CredentialsError):
            _ask(server, tmp_path, login=False)
        assert len(server.asked) == 1


def test_a_wrong_token_is_renewed_once(tmp_path: Path) -> None:
    with (
        ScriptedServer([_json({"token": "bad"})]) as tokens,
        _registry(f'Bearer realm="http://{tokens.host}/"') as server,
    ):
        with pytest.raises(CredentialsError, match=r"was not accepted.*; the server says: .*action: pull") as caught:
            _ask(server, tmp_path)
        assert "the right to pull as well as to push" in str(caught.value.hint)  # a robot of Harbor may do one alone
        assert ([asked.method for asked in server.asked], len(tokens.asked)) == (["HEAD", "HEAD", "GET"], 1)


def test_tokens_that_the_next_process_finds(tmp_path: Path) -> None:
    """Of the same host and login, while they last; not from files that others may read or that hold no token."""
    now = [1000.0]

    def store(host: str = "host", identity: str = "ann") -> TokenStore:
        return TokenStore(host, tmp_path / "cache/tokens", identity=identity, now=lambda: now[0])

    first, second = (Token(name, frozenset({f"repository:{name}:pull"}), 2000.0) for name in "ab")
    for token in (first, second):
        store().add(token)
    found = store().find(second.scopes)
    assert found == replace(second, stored=True)
    assert found == store().find(second.scopes)
    assert store().find(first.scopes) == replace(first, stored=True)
    assert store("other").find(first.scopes) is store(identity="eve").find(first.scopes) is None
    store().drop(first.text)  # this store never saw it, so it has no file to remove
    holder = store()
    holder.find(first.scopes)
    holder.drop(first.text)
    assert store().find(first.scopes) is None
    now[0] = 1995.0
    assert store().find(second.scopes) is None
    now[0] = 1000.0
    (file,) = (tmp_path / "cache/tokens").iterdir()
    for damaged in ("{", "[]", '{"token": "b"}'):
        file.write_text(damaged)
        assert store().find(second.scopes) is None


class _Sent:
    """Instead of a transport: what was sent to token servers, all answered with a token."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def __call__(self, method: str, url: str, **_: object) -> Answer:
        self.urls.append(url)
        return Answer(method, url, 200, {}, (), b'{"token":"good"}')


def _authorizer(host: str, sent: _Sent) -> Authorizer:
    """With a login."""
    login = Login(username="ann", password="pw")
    found = FoundLogin(lambda: login, "a file", ("a file",))
    return Authorizer(
        host,
        find_dialect(host),
        Origin("https", host, 443),
        login=HostLogin(host, lambda: found),
        tokens=TokenStore(host, Path("/proc/none"), identity="", now=lambda: 0.0),
        send=sent,
        now=lambda: 0.0,
    )


def _challenged(host: str, realm: str) -> tuple[str, _Sent]:
    """What an https registry's challenge leads to."""
    sent = _Sent()
    authorizer = _authorizer(host, sent)
    answer = Answer("HEAD", f"https://{host}/v2/a", 401, {}, (f'Bearer realm="{realm}",service="s"',), b"")
    return authorizer.answer_challenge(answer, None, pull("a")), sent


@pytest.mark.parametrize(
    ("host", "realm"),
    [
        ("registry-1.docker.io", "https://auth.docker.io/token"),
        ("registry.example", "https://registry.example/token"),
        ("10.0.0.2", "https://10.0.0.3/token"),
    ],
)
def test_r24_a_realm_that_is_followed(host: str, realm: str) -> None:
    header, sent = _challenged(host, realm)
    assert header == "Bearer good"
    assert sent.urls == [f"{realm}?service=s&scope=repository%3Aa%3Apull&account=ann"]


@pytest.mark.parametrize(
    ("host", "realm", "says"),
    [
        ("registry.example", "http://registry.example/token", "from https to http"),
        ("registry.example", "https://169.254.169.254/token", "link-local address"),
        ("registry.example", "https://10.0.0.1/token", "private address"),
        ("registry.example", "https://ann:pw@auth.example/token", "credentials in it"),
        ("registry.example", "/token", "not an http or https URL"),
        ("registry.example", "ftp://auth.example", "not an http or https URL"),
        ("registry.example", "file:///etc/passwd", "not an http or https URL"),
    ],
)
def test_r24_a_realm_that_gets_no_password(host: str, realm: str, says: str) -> None:
    with pytest.raises(RegistryRefusedError, match=says) as caught:
        _challenged(host, realm)
    assert str(caught.value).startswith(f"logging in to {host}: ")


@pytest.mark.parametrize(
    ("challenge", "sent", "header"),
    [
        ('Basic realm="r"', None, "Basic YW5uOnB3"),
        ('Negotiate, Basic realm="r"', None, "Basic YW5uOnB3"),
        ("Negotiate", None, None),
        ('Basic realm="r"', "Basic YW5uOnB3", None),
    ],
)
def test_a_login_goes_once_to_whoever_asks_for_it(challenge: str, sent: str | None, header: str | None) -> None:
    authorizer = _authorizer("registry.example", _Sent())
    answer = Answer("HEAD", "https://registry.example/v2/a", 401, {}, (challenge,), b"")
    with nullcontext() if header else pytest.raises(CredentialsError, match="the login from a file was not accepted"):
        assert authorizer.answer_challenge(answer, sent, pull("a")) == header


def test_r2_a_403_without_a_login_is_about_credentials(tmp_path: Path) -> None:
    with ScriptedServer([Reply(403, b'{"errors":[{"code":"DENIED","message":"x"}]}')]) as server:
        with pytest.raises(CredentialsError, match="there is no login") as caught:
            _ask(server, tmp_path, login=False)
        assert f"docker login {server.host}" in str(caught.value.hint)
        with pytest.raises(RegistryRefusedError, match="HTTP 403"):
            _ask(server, tmp_path)


def test_a_token_server_that_is_gone_is_named(tmp_path: Path) -> None:
    realm = f"http://127.0.0.1:{free_port()}/token"
    with _registry(f'Bearer realm="{realm}"') as server, pytest.raises(TemporaryError, match=realm) as caught:
        _ask(server, tmp_path)
    assert isinstance(caught.value, ImgtoolError)


def _strict(realm: str, refusal: Reply) -> ScriptedServer:
    """A registry that takes tokens alone, refuses a login so and tells strangers of its token server."""

    def reply(asked: Asked) -> Reply:
        sent = asked.headers.get("authorization", "")
        if sent == "Bearer good":
            return FOUND
        scope = "repository:user/image:pull"  # what GitHub's names where nothing is asked for
        return refusal if sent else Reply(401, b"", {"WWW-Authenticate": f'Bearer realm="{realm}",scope="{scope}"'})

    return ScriptedServer(reply)


DENIED = b'{"errors":[{"code":"DENIED","message":"invalid token"}]}'


@pytest.mark.parametrize(
    "refusal",
    [Reply(403, DENIED), Reply(400, DENIED), Reply(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})],
    ids=["GitHub", "Amazon's public", "Azure"],
)
def test_a_registry_that_refuses_a_login_and_wants_it_exchanged(tmp_path: Path, refusal: Reply) -> None:
    with (
        ScriptedServer([_json({"token": "good"})]) as tokens,
        _strict(f"http://{tokens.host}/token", refusal) as server,
    ):
        assert _ask(server, tmp_path) == DIGEST
        asked = [(one.method, one.target, one.headers.get("authorization", "")[:6]) for one in server.asked]
        manifest = "/v2/a/b/manifests/c"
        # After 400 a registry without TLS is asked first whether it wants that.
        assert list(dict.fromkeys(asked)) == [
            ("HEAD", manifest, "Basic "),
            ("GET", "/v2/", ""),
            ("HEAD", manifest, "Bearer"),
        ]
        (exchanged,) = tokens.asked
        assert "user%2Fimage" not in exchanged.target
        assert exchanged.headers["authorization"].startswith("Basic ")


def test_threads_find_out_together_what_a_registry_wants(tmp_path: Path) -> None:
    with (
        ScriptedServer([_json({"token": "good"})] * 9) as tokens,
        _strict(f"http://{tokens.host}/token", Reply(403, DENIED)) as server,
    ):
        _log_in(tmp_path, server.host)
        repository = parse_repository(f"{server.host}/a/b")
        with clients(machine(tmp_path)) as registries:
            head = registries.at(repository).head
            found = run_all({str(number): partial(head, repository.tag(f"t{number}")) for number in range(6)})
        assert set(found.values()) == {DIGEST}
        assert [one.target for one in server.asked].count("/v2/") == 1
        assert len(tokens.asked) == 1


@pytest.mark.parametrize(
    ("host", "sent"),
    [
        ("ghcr.io", False),
        ("docker.io", False),
        ("public.ecr.aws", False),
        ("me.azurecr.io", False),
        ("registry.example", True),
        ("1.dkr.ecr.eu-west-1.amazonaws.com", True),
        ("europe-docker.pkg.dev", True),
    ],
)
def test_who_gets_a_login_before_asking_for_it(host: str, sent: bool) -> None:
    header = _authorizer(host, _Sent()).header(pull("a/b"))
    assert (header is not None and header.startswith("Basic ")) == sent
