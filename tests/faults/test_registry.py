"""Groups E, P, O and R, as far as a registry is needed: refused, unknown, dying, lying, and what is then left."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from tests.faults.project import SPEC, Project
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from training_imgtool.model.spec import Role

pytestmark = pytest.mark.registry

BASIC = {"WWW-Authenticate": 'Basic realm="registry"'}
_NOT_MOVED = "cannot update tag. The repository has enabled tag immutability"
IMMUTABLE = json.dumps({"errors": [{"code": "MANIFEST_INVALID", "message": _NOT_MOVED}]}).encode()


def denied(message: str = "requested access is denied") -> bytes:
    return json.dumps({"errors": [{"code": "DENIED", "message": message}]}).encode()


def for_ever(method: str | None, path: str, status: int, body: bytes = b"", **headers: str) -> Fault:
    """Every such request is answered with this status."""
    return Fault(
        action=Action.ANSWER, method=method, path=path, times=-1, status=status, body=body, headers=headers or BASIC
    )


def pushed(proxy: FaultProxy) -> list[str]:
    """The roles whose tags were put, in order."""
    puts = [e for e in proxy.log if e.method == "PUT" and "/manifests/" in e.path and e.status == 201]
    names = [exchange.path.rpartition("/")[2].partition("-")[0] for exchange in puts]
    return [name for name in names if name in list(Role)]  # not the layers that roles share


def test_e06_base_tag_unknown(pushing: Project) -> None:
    pushing.spec(SPEC + "base: docker.io/library/python:3.11-nope\n", lock=False)
    for verb in ("lock", "push", "show"):
        says = ["library/python:3.11-nope: the registry has no such image"]
        pushing.refused(verb, "--json", code=6, says=says, hint="give another `base:`")


def test_p14_half_of_the_roles_fail(pushing: Project, proxy: FaultProxy) -> None:
    """The gravest failure decides the code, the others are named, and so is what got through."""
    pushing.spec(SPEC.replace("worker: {", "worker: {env: {A: b}, "))  # so that it has an image of its own
    proxy.add(for_ever("PUT", "/manifests/master", 403, denied()), for_ever("PUT", "/manifests/worker", 401))
    says = ["was not accepted (HTTP 401)", "also failed, master: ", "HTTP 403 DENIED"]
    ended = pushing.refused("push", "--json", code=7, says=says)
    assert len(ended.document["error"]["details"]) == 1
    proxy.clear()
    proxy.add(for_ever("PUT", "/manifests/worker", 403, denied()))
    ended = pushing.refused("push", "--tag", "v1", "--json", code=6, says=["demo:worker-"])
    master, worker = ended.document["error"]["details"]
    assert re.fullmatch(r"master: appended \S+/demo@sha256:[0-9a-f]{64}", master)
    assert worker == "worker: failed"
    assert pushed(proxy) == ["master"]  # and no v1 of any role
    proxy.clear()
    assert list(pushing.images(pushing.run("push"))) == ["master", "worker"]


def test_o07_no_secret_anywhere(pushing: Project) -> None:
    """A whole run with every mode of telling, and what it leaves on disk."""
    for mode in ("plain", "json"):
        ended = pushing.run("push", "--progress", mode, env={"IMGTOOL_DEBUG": "1"})
        assert ended.code == 0
    assert pushing.run("render", "-o", "out").code == 0
    assert pushing.run("config", "-o", "config.yaml").code == 0
    assert pushing.leaks() == []


def test_o08_dry_run(pushing: Project, proxy: FaultProxy) -> None:
    before = sorted(path for path in pushing.root.rglob("*") if "tokens" not in path.parts)
    assert pushing.run("build", "--push", "--dry-run").out == pushing.run("push", "--dry-run").out != ""
    ended = pushing.run("push", "--dry-run", "--json")
    assert [image["would"] for image in ended.document["images"]] == ["build-and-push"] * 2
    assert {exchange.method for exchange in proxy.log} == {"HEAD"}
    after = sorted(path for path in pushing.root.rglob("*") if "tokens" not in path.parts)
    assert [path for path in after if path not in before and path.is_file() and "cache" not in path.parts] == []


def in_a_mount(options: str, first: str = "") -> tuple[str, ...]:
    """A start in a mount namespace of its own, where `out` is a file system with these options and a config.yaml."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root and unshare")
    line = f'mkdir out && mount {options} && cd out && echo "old: true" > config.yaml && {first or "true"} && cd ..'
    return (
        "unshare",
        "-m",
        "sh",
        "-c",
        f'({line}) >&2 || exit 99; "$0" "$@"; code=$?; cat out/config.yaml; exit $code',
    )


def test_p08_disk_full(pushing: Project) -> None:
    """An ordinary rewrite would have emptied the old file."""
    assert pushing.run("push").code == 0
    fill = "{ cat /dev/zero > filler 2>/dev/null || true; }"
    before = in_a_mount("-t tmpfs -o size=64k tmpfs out", fill)
    ended = pushing.run("config", "-o", "out/config.yaml", before=before)
    assert ended.code == 9, ended
    assert "Error: cannot write out/config.yaml: no space left on device\nTry: free some space" in ended.err
    assert ended.out == "old: true\n"
