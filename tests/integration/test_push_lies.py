"""Registries that lie: a push ends with 0 on what is not there only if the registry discards what it confirmed.

A lie is about one of the requests of a push: the tag's HEAD, a manifest's GET and PUT, a blob's HEAD, POST and PUT, or
what happens between a blob and the manifest that names it. Each is tried with a registry that looks for blobs and with
one that does not. "upload: another repository" is the registry's own redirection to a place that keeps what it gets.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.sampling import campaign
from tests.servers.memory_registry import MemoryRegistry, Refusal, like_distribution
from tests.servers.scripted import Asked, Reply

Truth = Callable[[Asked], Reply]
Change = Callable[[Reply], Reply]

ABSENT = f"sha256:{'ab' * 32}"
DIGEST = "Docker-Content-Digest"


def _with(**changes: object) -> Change:
    """Answers with another status, body or length; a header of None is left out."""
    headers = dict(changes.pop("headers", {}))  # type: ignore[call-overload]

    def change(reply: Reply) -> Reply:
        merged = {name: value for name, value in {**reply.headers, **headers}.items() if value is not None}
        return replace(reply, headers=merged, **changes)  # type: ignore[arg-type]

    return change


def _recase(reply: Reply) -> Reply:
    digest = reply.headers.get(DIGEST, "")
    return replace(reply, headers={**reply.headers, DIGEST: digest[:7] + digest[7:].upper()})


HTML = _with(status=200, body=b"<html>login</html>", headers={"Content-Type": "text/html"})
# What is lied to (method, part of the path, whether the registry does what it was asked to), and how it answers then.
LIES: dict[str, tuple[str, str, bool, Change]] = {
    "tag is a digest that no GET knows": ("HEAD", "/manifests/", False, _with(status=200, headers={DIGEST: ABSENT})),
    "tag without a digest": ("HEAD", "/manifests/", False, _with(status=200, headers={DIGEST: None})),
    "tag of garbage": ("HEAD", "/manifests/", False, _with(status=200, headers={DIGEST: "sha256:zz"})),
    "tag with another algorithm": (
        "HEAD",
        "/manifests/",
        False,
        _with(status=200, headers={DIGEST: "md5:" + "0" * 32}),
    ),
    "tag: 204": ("HEAD", "/manifests/", False, _with(status=204)),
    "tag: 302 to nowhere": ("HEAD", "/manifests/", False, _with(status=302, headers={"Location": "/nowhere"})),
    "manifest GET: other bytes": ("GET", "/manifests/", True, lambda r: replace(r, body=r.body + b" ")),
    "manifest GET: cut": ("GET", "/manifests/", True, lambda r: replace(r, body=r.body[:-9])),
    "manifest GET: cut, length kept": (
        "GET",
        "/manifests/",
        True,
        lambda r: replace(r, body=r.body[:-9], length=len(r.body)),
    ),
    "manifest GET: a page": ("GET", "/manifests/", True, HTML),
    "manifest GET: empty": ("GET", "/manifests/", True, _with(body=b"")),
    "manifest GET: 404": ("GET", "/manifests/", True, _with(status=404, body=b"{}")),
    "manifest GET: 204": ("GET", "/manifests/", True, _with(status=204, body=b"")),
    "manifest GET: no JSON": ("GET", "/manifests/", True, _with(body=b"{]")),
    "manifest GET: another type": ("GET", "/manifests/", True, _with(headers={"Content-Type": "application/json"})),
    "manifest PUT: discarded": (
        "PUT",
        "/manifests/",
        False,
        lambda r: r,
    ),
    "manifest PUT: discarded, no digest": ("PUT", "/manifests/", False, _with(status=201, headers={DIGEST: None})),
    "manifest PUT: discarded, other digest": ("PUT", "/manifests/", False, _with(status=201, headers={DIGEST: ABSENT})),
    "manifest PUT: discarded, 200": ("PUT", "/manifests/", False, _with(status=200)),
    "manifest PUT: discarded, 202": ("PUT", "/manifests/", False, _with(status=202)),
    "manifest PUT: discarded, a page": ("PUT", "/manifests/", False, HTML),
    "manifest PUT: kept, no digest": ("PUT", "/manifests/", True, _with(headers={DIGEST: None})),
    "manifest PUT: kept, other digest": ("PUT", "/manifests/", True, _with(headers={DIGEST: ABSENT})),
    "manifest PUT: kept, garbage": ("PUT", "/manifests/", True, _with(headers={DIGEST: "x"})),
    "manifest PUT: kept, 500": ("PUT", "/manifests/", True, _with(status=500)),
    "blob HEAD: there, and is not": ("HEAD", "/blobs/", False, _with(status=200)),
    "blob HEAD: another length": ("HEAD", "/blobs/", True, _with(headers={"Content-Length": "7"})),
    "blob HEAD: gone, and is there": ("HEAD", "/blobs/", True, _with(status=404)),
    "blob HEAD: 204": ("HEAD", "/blobs/", False, _with(status=204)),
    "upload: no place": ("POST", "/blobs/", True, _with(headers={"Location": None})),
    "upload: a place elsewhere": ("POST", "/blobs/", True, _with(headers={"Location": "http://169.254.169.254/x"})),
    "upload: a file": ("POST", "/blobs/", True, _with(headers={"Location": "file:///etc/passwd"})),
    "upload: 200": ("POST", "/blobs/", True, _with(status=200)),
    "upload: 201, mounted and is not": ("POST", "/blobs/", False, _with(status=201)),
    "upload: a page": ("POST", "/blobs/", True, HTML),
    "blob PUT: discarded": ("PUT", "/blobs/", False, _with(status=201)),
    "blob PUT: discarded, 200": ("PUT", "/blobs/", False, _with(status=200)),
    "blob PUT: discarded, 202": ("PUT", "/blobs/", False, _with(status=202)),
    "blob PUT: discarded, 204": ("PUT", "/blobs/", False, _with(status=204)),
    "blob PUT: discarded, other digest": ("PUT", "/blobs/", False, _with(status=201, headers={DIGEST: ABSENT})),
    "blob PUT: kept, other digest": ("PUT", "/blobs/", True, _with(headers={DIGEST: ABSENT})),
    "blob PUT: kept, 404": ("PUT", "/blobs/", True, _with(status=404)),
    "blob PUT: kept, 500": ("PUT", "/blobs/", True, _with(status=500)),
    "blob PUT: a byte short": ("PUT", "/blobs/", True, lambda r: r),
    "blob PUT: another byte": ("PUT", "/blobs/", True, lambda r: r),
    "tag is a digest in capitals": ("HEAD", "/manifests/", True, _recase),
    "manifest GET: packed": (
        "GET",
        "/manifests/",
        True,
        lambda r: replace(r, body=gzip.compress(r.body), headers={**r.headers, "Content-Encoding": "gzip"}),
    ),
    "manifest GET: two readings": (
        "GET",
        "/manifests/",
        True,
        lambda r: replace(r, body=r.body[:-1] + b',"Layers":[]}'),
    ),
    "manifest PUT: discarded, 204": ("PUT", "/manifests/", False, _with(status=204)),
    "manifest PUT: kept, digest in capitals": ("PUT", "/manifests/", True, _recase),
    "upload: a place with a login": ("POST", "/blobs/", True, _with(headers={"Location": "http://a:b@127.0.0.1:9/x"})),
    "upload: a host": ("POST", "/blobs/", True, _with(headers={"Location": "//169.254.169.254/x"})),
    "upload: a path of slashes": ("POST", "/blobs/", True, _with(headers={"Location": "\\\\169.254.169.254\\x"})),
    "upload: another repository": ("POST", "/blobs/", True, _with(headers={"Location": "/v2/other/blobs/uploads/1"})),
    "blobs lost before the manifest": ("PUT", "/manifests/", True, lambda r: r),
}
# The registry confirmed these by their digest and has them not: no client notices, but one that reads everything back.
ALWAYS = {"manifest PUT: discarded", "blob PUT: a byte short", "blob PUT: another byte"}
IF_IT_DOES_NOT_LOOK = {"blob PUT: discarded", "upload: another repository", "blobs lost before the manifest"}
_SAMPLE = {"manifest PUT: discarded, no digest"}
_LONG = {*list(LIES)[::3], "tag is a digest that no GET knows", "blob PUT: another byte"} - _SAMPLE


@pytest.mark.parametrize("refusal", [None, like_distribution], ids=["lax", "strict"])
@pytest.mark.parametrize("name", campaign(LIES, _LONG, quick=_SAMPLE))
def test_a_lie_is_found_out_or_is_about_what_was_confirmed(tmp_path: Path, name: str, refusal: Refusal | None) -> None:
    wheels, base = Wheels(tmp_path / "wheels"), make_base()
    project = Project(tmp_path / "project", wheels, base)
    with MemoryRegistry(refusal) as registry, MemoryRegistry(refusal) as other:
        base.put(registry.host)
        base.put(other.host)
        machine = Machine(tmp_path / "one", f"{registry.host}/team", registry.host)
        machine.give(wheels)
        machine.push(project, "--role", "worker")  # so that it knows whether the registry looks for blobs
        project.write("trainer/task.py", "print('more')\n")
        registry.lie, other.lie = partial(_lie, registry, name), partial(_lie, other, name)
        code, out, said = _push(machine, project)
        assert code in {0, 6, 8, 10}, said
        believed = code == 0 and not _is_whole(registry, out.split("@")[1].strip())
        assert believed == (name in ALWAYS or (name in IF_IT_DOES_NOT_LOOK and refusal is None))
        if believed:
            code, _, said = _push(machine, project, "--prove", "--registry", f"{other.host}/team")
            assert code in {6, 10}, said


def _push(machine: Machine, project: Project, *options: str) -> tuple[int, str, str]:
    process = machine.start("push", "--locked", "--role", "worker", *options, cwd=project.folder)
    out, said = (text.decode() for text in process.communicate(timeout=300))
    assert "Traceback" not in said
    return process.returncode, out, said


def _lie(registry: MemoryRegistry, name: str, asked: Asked, truth: Truth) -> Reply | None:
    method, part, does, change = LIES[name]
    if asked.method != method or part not in asked.target or "/team/" not in asked.target:
        return None
    if name == "blobs lost before the manifest":
        for blobs in registry.blobs.values():
            for digest in list(blobs)[-2:]:
                del blobs[digest]
    if name == "blob PUT: a byte short":
        return truth(replace(asked, body=asked.body[:-1]))
    if name == "blob PUT: another byte":
        return truth(replace(asked, body=bytes([asked.body[0] ^ 1]) + asked.body[1:]))
    if does:
        return change(truth(asked))
    digest = f"sha256:{hashlib.sha256(asked.body).hexdigest()}"
    return change(Reply(201, headers={DIGEST: digest} if part == "/manifests/" else {}))


def _is_whole(registry: MemoryRegistry, digest: str) -> bool:
    stored = registry.manifests.get("team/demo", {}).get(digest)
    if stored is None or f"sha256:{hashlib.sha256(stored[1]).hexdigest()}" != digest:
        return False
    document = json.loads(stored[1])
    blobs = registry.blobs["team/demo"]
    return all(
        f"sha256:{hashlib.sha256(blobs.get(blob['digest'], b'')).hexdigest()}" == blob["digest"]
        for blob in (document["config"], *document["layers"])
    )
