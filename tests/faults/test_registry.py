"""Groups E, P, O and R, as far as a registry is needed: refused, unknown, dying, lying, and what is then left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.base import put_base
from tests.faults.project import SPEC, Project
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from tests.servers.registry_process import free_port, run_registry
from tests.servers.scripted import Reply, ScriptedServer
from tests.servers.simple_index import SimpleIndex, serving
from training_imgtool.spec.model import Role

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


def test_r02_push_forbidden(pushing: Project, proxy: FaultProxy) -> None:
    proxy.add(for_ever("POST", "/blobs/uploads/", 403, denied("no push \x1b[31mfor you")))
    says = ["refused (HTTP 403 DENIED from", proxy.host, "the server says: DENIED: no push for you"]
    pushing.refused("push", "--json", code=6, says=says, hint="the right to push there")
    assert pushed(proxy) == []
    pushing.refused("config", "-o", "config.yaml", code=3, says=["2 of 2 images"], hint="imgtool push image.yaml")


def test_r01_push_unauthorized(pushing: Project, proxy: FaultProxy) -> None:
    proxy.add(for_ever("POST", "/blobs/uploads/", 401))
    says = [f"{proxy.host}: the login from {pushing.home}/.docker/config.json was not accepted (HTTP 401)"]
    pushing.refused("push", "--json", code=7, says=says, hint=f"docker login {proxy.host}")
    assert pushed(proxy) == []


def test_r01_no_login(pushing: Project, proxy: FaultProxy) -> None:
    pushing.login("other.example.com")
    proxy.add(for_ever(None, "", 401))
    says = [f"{proxy.host} wants a login and there is none", f"config.json (no entry for {proxy.host})"]
    for arguments in (("push", "--json"), ("config",), ("build", "--push", "--dry-run", "--json")):
        pushing.refused(*arguments, code=7, says=says, hint=f"docker login {proxy.host}")


@pytest.mark.parametrize("verb", ["push", "config"])
def test_r26_unknown_host(pushing: Project, verb: str) -> None:
    arguments = (verb, "--registry", "registry.nowhere.invalid/x", *(["--json"] if verb == "push" else []))
    says = ["the host registry.nowhere.invalid cannot be found"]
    pushing.refused(*arguments, code=8, says=says, hint="check the host's name and this machine's DNS")


def test_r26_nothing_listens(pushing: Project) -> None:
    """A registry that never answered is not tried again: a wrong port shows at once."""
    host = f"127.0.0.1:{free_port()}"
    says = [f"nothing answers at http://{host} (Connection refused)"]
    ended = pushing.refused("push", "--registry", f"{host}/x", "--json", code=8, says=says, hint="name and port")
    assert "trying again" not in ended.err


def test_r25_no_registry_there(pushing: Project) -> None:
    """A web server that is no registry: HTML is not dumped."""
    page = Reply(200, b"<html>welcome</html>", {"Content-Type": "text/html"})
    with ScriptedServer([page]) as server:
        says = [server.host, "the registry's manifest is not JSON"]
        arguments = ("push", "--registry", f"{server.host}/x", "--json")
        ended = pushing.refused(*arguments, code=10, says=says, hint="a registry")
    assert "welcome" not in ended.err


def test_r09_a_registry_that_restarts_while_pushing(project: Project, tmp_path: Path) -> None:
    """The push waits for it; the policy outlasts 15 s (`tests/registry/test_retry.py`)."""
    data = tmp_path / "data"
    back = threading.Event()
    with ExitStack() as stack, run_registry(tmp_path / "one", data=data) as registry:
        proxy = stack.enter_context(FaultProxy(registry.host))
        put_base(registry.host)
        project.env |= {"IMGTOOL_REGISTRY": f"{proxy.host}/team", "IMGTOOL_MIRRORS": f"docker.io={proxy.host}"}

        def restart() -> None:
            time.sleep(1)
            proxy.upstream = stack.enter_context(run_registry(tmp_path / "two", data=data)).host
            back.set()

        def die(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
            registry.process.kill()
            threading.Thread(target=restart).start()
            return status, headers, body

        proxy.add(Fault(action=Action.CHANGE, method="PUT", path="/blobs/uploads/", change=die))
        ended = project.run("push")
        assert list(project.images(ended)) == ["master", "worker"]
        assert "trying again in" in ended.err
        assert back.wait(5)
        assert project.run("config", "-o", "config.yaml").code == 0
    assert "@sha256:" in project.config.read_text()


def test_r19_immutable_tag(pushing: Project, proxy: FaultProxy) -> None:
    before = pushing.images(pushing.run("push"))
    proxy.clear()
    proxy.add(for_ever("PUT", "/manifests/worker-v1", 400, IMMUTABLE))
    says = ["demo:worker-v1: the registry does not let tags be moved", before["worker"].partition("@")[2]]
    pushing.refused("push", "--tag", "v1", "--json", code=6, says=says, hint="choose another tag")
    assert sum(exchange.method == "PUT" and "worker-v1" in exchange.path for exchange in proxy.log) == 1


def test_r18_a_tag_that_is_there_already(pushing: Project, proxy: FaultProxy) -> None:
    """A repeated CI run on a registry with immutable tags finds what it would push."""
    assert pushing.run("push", "--tag", "v1").code == 0
    proxy.clear()
    proxy.add(for_ever("PUT", "/manifests/", 400, IMMUTABLE))
    assert pushing.run("push", "--tag", "v1").code == 0


def test_r21_read_only_registry(pushing: Project, proxy: FaultProxy) -> None:
    proxy.add(for_ever("POST", "", 405, b"Method not allowed"))
    pushing.refused("push", "--json", code=6, says=["HTTP 405", "Method not allowed"], hint="read-only")


def test_r08_request_too_large(pushing: Project, proxy: FaultProxy) -> None:
    page = b"<html><center>413 Request Entity Too Large</center></html>"
    proxy.add(for_ever(None, "/blobs/uploads/", 413, page))
    ended = pushing.refused("push", code=6, says=["HTTP 413", "bytes) to"], hint="limits the size of a request")
    assert "<html>" not in ended.err


def test_r15_a_registry_that_loses_what_it_takes(pushing: Project, proxy: FaultProxy) -> None:
    gone = Fault(action=Action.ANSWER, method="PUT", path="/manifests/worker", times=-1, status=201)
    proxy.add(gone)
    pushing.refused("push", "--json", code=10, says=["demo"])
    pushing.refused("config", "-o", "config.yaml", code=3, says=["1 of 2 images", "worker"])


def test_e06_base_tag_unknown(pushing: Project) -> None:
    pushing.spec(SPEC + "base: docker.io/library/python:3.11-nope\n", lock=False)
    for verb in ("lock", "push", "show"):
        says = ["library/python:3.11-nope: the registry has no such image"]
        pushing.refused(verb, "--json", code=6, says=says, hint="give another `base:`")


def test_e06_base_gone_since_it_was_locked(pushing: Project, proxy: FaultProxy) -> None:
    unknown = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
    proxy.add(for_ever("GET", "/library/python/manifests/", 404, unknown))
    pushing.refused("push", "--json", code=6, says=["library/python@sha256:", "manifest unknown"])


def test_r16_base_damaged_on_its_way(pushing: Project, proxy: FaultProxy) -> None:
    def bend(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        return status, headers, body.replace(b"amd64", b"amd65")

    proxy.add(Fault(action=Action.CHANGE, method="GET", path="/library/python/blobs/", times=-1, change=bend))
    pushing.refused("push", "--json", code=10, says=["sha256:"])
    proxy.clear()
    assert pushing.run("push").code == 0


def test_p14_half_of_the_roles_fail(pushing: Project, proxy: FaultProxy) -> None:
    """The gravest failure decides the code, the others are named, and so is what got through."""
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


def test_p10_config_that_cannot_be_written(pushing: Project, proxy: FaultProxy) -> None:
    """The place is looked at before the registry is asked; the images stay, and a rerun pushes nothing."""
    images = pushing.images(pushing.run("push"))
    proxy.clear()
    pushing.refused("config", "-o", "trainer", code=9, says=["cannot write trainer: it is a folder"])
    assert proxy.log == []
    assert pushing.images(pushing.run("push")) == images
    assert {exchange.method for exchange in proxy.log} == {"HEAD", "GET"}


def test_p09_config_is_a_link(pushing: Project) -> None:
    assert pushing.run("push").code == 0
    real = pushing.root / "real.yaml"
    pushing.config.rename(real)
    real.chmod(0o640)
    pushing.config.symlink_to(real)
    assert pushing.run("config", "-o", "config.yaml").code == 0
    assert pushing.config.is_symlink()
    assert "@sha256:" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_p05_two_at_once(pushing: Project) -> None:
    """Both end well, and the file is the whole output of one of them."""
    assert pushing.run("push").code == 0
    expected = {pushing.run("config", "--job-id", name).out for name in ("one", "two")}
    processes = [pushing.start("config", "-o", "config.yaml", "--job-id", name) for name in ("one", "two")]
    assert [process.wait(60) for process in processes] == [0, 0]
    for process in processes:
        process.communicate()
    assert pushing.config.read_text() in expected
    assert sorted(path.name for path in pushing.folder.iterdir()) == [
        "config.yaml",
        "image.lock",
        "image.yaml",
        "trainer",
    ]


def test_p07_read_only_cache(pushing: Project, proxy: FaultProxy) -> None:
    """Nothing is sent when there is no place to make layers."""
    pushing.env["IMGTOOL_CACHE"] = "/proc/imgtool"
    ended = pushing.run("push", "--json")
    pushing.failed(ended, "--json", code=9, says=["/proc/imgtool"], hint="IMGTOOL_CACHE")
    assert pushed(proxy) == []


def test_p13_damaged_cache(pushing: Project, proxy: FaultProxy) -> None:
    """A wheel of the right size with other bytes is found out before anything of it is pushed."""
    wheel = next(pushing.cache.rglob("numpy*.whl"))
    data = bytearray(wheel.read_bytes())
    data[40] ^= 1
    wheel.write_bytes(data)
    says = ["numpy-1.26.4-py3-none-any.whl: sha256 is", "the lock says"]
    pushing.refused("push", "--json", code=10, says=says, hint="remove ")
    assert pushed(proxy) == []


def test_p13_cut_cache(pushing: Project) -> None:
    """A wheel of another size is fetched again."""
    wheel = next(pushing.cache.rglob("numpy*.whl"))
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[:50])
    index = SimpleIndex()
    index.add("numpy", wheel.name, whole)
    with serving(index):
        ended = pushing.run("push", env={"UV_INDEX_URL": index.url})
    assert list(pushing.images(ended)) == ["master", "worker"]
    assert "numpy-1.26.4-py3-none-any.whl in the cache is damaged; fetching it again" in ended.err
    assert wheel.read_bytes() == whole


def test_the_index_does_not_answer(pushing: Project, proxy: FaultProxy) -> None:
    next(pushing.cache.rglob("numpy*.whl")).unlink()
    ended = pushing.refused(
        "push", code=8, says=["the package index 127.0.0.1:9 does not answer"], hint="try again later"
    )
    assert "fetched" not in ended.err
    assert pushed(proxy) == []


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
    ended = pushing.run("build", "--push", "--dry-run", "--json")
    assert [image["would"] for image in ended.document["images"]] == ["build-and-push"] * 2
    assert {exchange.method for exchange in proxy.log} == {"HEAD"}
    after = sorted(path for path in pushing.root.rglob("*") if "tokens" not in path.parts)
    assert [path for path in after if path not in before and path.is_file() and "cache" not in path.parts] == []


def test_o06_escapes_in_a_registrys_words(pushing: Project, proxy: FaultProxy) -> None:
    proxy.add(for_ever("POST", "", 403, denied("\x1b]0;owned\x07\u202etxt.exe" + "x" * 5000)))
    ended = pushing.refused("push", code=6, says=["HTTP 403"])
    assert "\x07" not in ended.err
    assert "\u202e" not in ended.err
    assert max(len(line) for line in ended.err.splitlines()) < 1500


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


def test_p07_read_only_file_system(pushing: Project, proxy: FaultProxy) -> None:
    """Root is stopped too, and before anything is asked."""
    before = in_a_mount("-t tmpfs tmpfs out", "mount -o remount,ro out 2>/dev/null || mount -o remount,ro .")
    ended = pushing.run("config", "-o", "out/config.yaml", before=before)
    assert ended.code == 9, ended
    assert "Error: cannot write out/config.yaml: read-only file system\nTry: choose another place" in ended.err
    assert ended.out == "old: true\n"
    assert proxy.log == []
