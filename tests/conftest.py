"""What all tests share: which services they need, and that no tier is empty unnoticed."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
_ran: Counter[str] = Counter()
_BEFORE = pytest.StashKey[set[str]]()


@functools.cache
def engine_missing() -> str | None:
    """Why tests marked `engine` cannot run, or None."""
    import docker

    try:
        client = docker.from_env(timeout=20)
    except docker.errors.DockerException as error:
        return f"no Docker Engine answers (scripts/services up): {error}"
    try:
        client.ping()
    except docker.errors.DockerException as error:
        return f"no Docker Engine answers (scripts/services up): {error}"
    finally:
        client.close()
    return None


@functools.cache
def registry_missing() -> str | None:
    """Why tests marked `registry` cannot run, or None."""
    return None if shutil.which("docker-registry") else "no docker-registry program (scripts/services up)"


@functools.cache
def network_missing() -> str | None:
    """Why tests marked `network` cannot run, or None: uv asks the index of this machine for one small project."""
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", "--quiet", "--no-cache", "--no-header", "-"]
    done = subprocess.run(command, input="pip\n", capture_output=True, text=True, timeout=120, check=False)
    return None if done.returncode == 0 else "the package index does not answer"


_MISSING = {"engine": engine_missing, "registry": registry_missing, "network": network_missing}


def pytest_configure() -> None:
    """Undoes what `nohup` and a shell's `&` do: a program started here would ignore the signals that tests send it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require", default="", metavar="TIERS", help="markers of which one test must run where its service is there"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """What belongs to a campaign is long too: who leaves out long tests leaves out both."""
    if item.get_closest_marker("campaign"):
        item.add_marker("long")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are no names: an archive made while tests are collected differs from worker to worker by its date."""
    return argname if isinstance(val, bytes) else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what cannot run here, with the reason."""
    for tier, missing in _MISSING.items():
        if item.get_closest_marker(tier):
            reason = missing()
            if reason:
                pytest.skip(reason)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.outcome != "skipped":
        _ran.update(tier for tier in ("engine", "registry", "network", "slow") if tier in report.keywords)


def _local_images() -> set[str]:
    """Names in the engine that only tests and the demo give: of this machine's registries, and of stages."""
    import docker

    with contextlib.closing(docker.from_env(timeout=60)) as client:
        found = client.api.images()
    names = {name for image in found for name in (*(image["RepoTags"] or ()), *(image["RepoDigests"] or ()))}
    ours = {name for name in names if name.startswith(("127.0.0.1:", "imgtool/"))}
    return {name for name in ours if "<none>" not in name and "/library/" not in name and "/nvidia/" not in name}


def _whole_run(config: pytest.Config) -> bool:
    """Whether this is the one process of `make test` that starts the others, with an engine to look after."""
    whole = not hasattr(config, "workerinput") and "engine" in config.getoption("--require")
    return whole and not engine_missing()


def pytest_sessionstart(session: pytest.Session) -> None:
    if _whole_run(session.config):
        session.config.stash[_BEFORE] = _local_images()


def _remove_new_images(session: pytest.Session) -> None:
    """What the run left in the engine goes: gigabytes. Not before every worker has ended: they share the engine."""
    import docker

    before = session.config.stash[_BEFORE]
    with contextlib.closing(docker.from_env(timeout=60)) as client:
        for image in _local_images() - before:
            with contextlib.suppress(docker.errors.DockerException):
                client.images.remove(image, force=True)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the run when a required tier ran nothing although its service is there."""
    if hasattr(session.config, "workerinput"):
        return
    if _BEFORE in session.config.stash:
        _remove_new_images(session)
    for tier in filter(None, session.config.getoption("--require").split(",")):
        if not _ran[tier] and not _MISSING.get(tier, lambda: None)():
            print(f"\nno test marked `{tier}` ran")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _without_the_machines_settings(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Unit tests see none of imgtool's environment variables; integration tests take them from their fixtures."""
    for name in [name for name in os.environ if name.startswith("IMGTOOL_")] + ["SOURCE_DATE_EPOCH"]:
        monkeypatch.delenv(name, raising=False)
