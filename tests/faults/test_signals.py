"""P1, P2, P4: Ctrl-C, SIGTERM and SIGHUP in the middle of things that take a minute. Over soon, and nothing left."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.faults.project import OLD_CONFIG, SPEC, Ended, Project
from tests.make.engines.support import wait_for
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from tests.servers.simple_index import SimpleIndex, serving

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
EACH = pytest.mark.parametrize("signum", CODES, ids=lambda signum: signum.name)


def stop(project: Project, process: subprocess.Popen[bytes], signum: int) -> Ended:
    """Sends a signal to a command, which ends long before what it waits for."""
    process.send_signal(signum)
    return project.ended(process, timeout=20)


def check_stopped(project: Project, signum: int, ended: Ended) -> None:
    """Checks the end of a command that got a signal."""
    assert ended.code == CODES[signal.Signals(signum)], ended
    assert "stopped" in ended.err
    assert "Error: " not in ended.err
    assert json.loads(ended.out)["error"]["code"] == ended.code
    assert project.config.read_text() == OLD_CONFIG
    assert project.leaks() == []


@pytest.fixture
def stalled(pushing: Project, proxy: FaultProxy) -> Iterator[Project]:
    """A project whose registry takes a minute over each upload."""
    proxy.add(Fault(action=Action.DELAY, method="PUT", path="/blobs/uploads/", times=-1, seconds=60))
    yield pushing
    proxy.clear()


@pytest.mark.registry
@EACH
def test_p01_while_pushing(stalled: Project, proxy: FaultProxy, signum: int) -> None:
    with stalled.under_way("push", "--json") as process:
        assert wait_for(lambda: "PUT" in proxy.methods(), 20)
        check_stopped(stalled, signum, stop(stalled, process, signum))
    proxy.clear()
    assert list(stalled.images(stalled.run("push"))) == ["master", "worker"]


@pytest.mark.registry
def test_p01_twice_is_at_once(stalled: Project, proxy: FaultProxy) -> None:
    """It ends in the middle of what it writes: files with names of their own, which `prune` knows."""
    with stalled.under_way("push") as process:
        assert wait_for(lambda: "PUT" in proxy.methods(), 20)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, stalled.running(), b"Traceback" in err) == (130, [], False)
    assert stalled.run("prune", "--all").code == 0  # `run` checks that no temporary file is left


@pytest.mark.registry
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=lambda signum: signum.name)
def test_p02_while_uv_resolves(pushing: Project, signum: int) -> None:
    """The program that was started ends too, with its temporary files, and no half of a lock is written."""
    pushing.write("requirements.txt", "numpy\n")
    pushing.spec(SPEC + "requirements: requirements.txt\n", lock=False)
    lock = (pushing.folder / "image.lock").read_bytes()
    index = SimpleIndex(seconds=60)
    with serving(index):
        pushing.env["UV_INDEX_URL"] = index.url
        with pushing.under_way("lock", "--json") as process:
            assert wait_for(lambda: index.requests, 20)
            assert any("uv" in line for line in pushing.running())
            ended = stop(pushing, process, signum)
    check_stopped(pushing, signum, ended)
    assert (pushing.folder / "image.lock").read_bytes() == lock


@pytest.mark.registry
def test_p02_while_a_credential_helper_hangs(pushing: Project, proxy: FaultProxy) -> None:
    """It and what it started are ended."""
    folder = pushing.home / "bin"
    folder.mkdir()
    helper = folder / "docker-credential-slow"
    helper.write_text("#!/bin/sh\nsleep 300\n")
    helper.chmod(0o755)
    (pushing.home / ".docker/config.json").write_text(json.dumps({"credHelpers": {proxy.host: "slow"}}))
    pushing.env["PATH"] = f"{folder}:{pushing.env['PATH']}"
    with pushing.under_way("push", "--json") as process:
        assert wait_for(lambda: any("sleep 300" in line for line in pushing.running()), 20)
        ended = stop(pushing, process, signal.SIGTERM)
    check_stopped(pushing, signal.SIGTERM, ended)


@pytest.mark.parametrize(
    ("verb", "count"),
    [
        ("push", 4),
        ("config", 4),
        *(pytest.param(verb, 100, marks=pytest.mark.long) for verb in ("push", "config", "lock")),
    ],
)
def test_p01_interrupts_in_the_first_second(pushing: Project, verb: str, count: int) -> None:
    """While Python imports, and after: 130, no traceback. What comes before any line of imgtool is Python's own."""
    pythons = 0
    for number in range(count):
        with pushing.under_way(verb, *(("-o", "-") if verb == "config" else ())) as process:
            time.sleep((number + 0.5) / count)
            running = process.poll() is None
            if running:
                process.send_signal(signal.SIGINT)
            _, err = (text.decode() for text in process.communicate(timeout=60))
        if running and process.returncode in {1, -2} and "/training_imgtool/" not in err:
            pythons += 1  # it died of the signal before the first line of imgtool
        elif "stopped" in err or process.returncode == 130:
            assert (process.returncode, "Traceback" in err, "bug" in err) == (130, False, False), err
    assert pythons < count / 2
