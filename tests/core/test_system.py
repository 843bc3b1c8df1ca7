"""What differs between Linux and macOS, both ways on this machine: macOS is emulated, not run."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.package_graph import modules
from training_imgtool.core import system
from training_imgtool.engines.buildx import program

LINUX_ONLY = (
    "F_SETPIPE_SZ",
    "RLIMIT_AS",
    "prctl",
    "sched_getaffinity",
    "sendfile",
    "memfd_create",
    "O_TMPFILE",
    "epoll",
    "flock",
    "pthread_kill",
    "fchown",
)
CHECKOUT = Path(__file__).parents[2]
LINUX_PLACES = ("/proc", "/sys/", "/dev/shm", "/dev/fd", "sysctl")
ELSEWHERE = {
    "cli.options": "/proc/self/fd/1",  # a name of stdout that people type
    "direct.files": "/proc",  # paths in images and containers, as the next three
    "jobs.kubernetes": "/dev/shm",
    "dockerfile.jinja": "RLIMIT_AS",  # a program of its own
    "cluster.inside.warm_program": "/proc/self/task",  # a program that runs in containers
}


@pytest.fixture(params=["linux", "darwin"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name that the module sees."""
    monkeypatch.setattr(system, "sys", SimpleNamespace(platform=request.param))
    return str(request.param)


def test_names_of_linux_alone_are_in_one_module() -> None:
    found: dict[str, set[str]] = {}
    for name, tree in modules().items():
        docs = {id(node.body[0].value) for node in ast.walk(tree) if _has_docstring(node)}  # type: ignore[attr-defined]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in LINUX_ONLY:
                found.setdefault(name, set()).add(node.attr)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                found.setdefault(name, set()).update(place for place in LINUX_PLACES if node.value.startswith(place))
    assert {name for name, words in found.items() if words} == {"core.system", *ELSEWHERE}


def _has_docstring(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.FunctionDef, ast.ClassDef)
    return isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None


def test_children_and_their_start(platform: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert child.pid in system.list_children()
        assert os.getpid() not in system.list_children()
        start = system.start_of(child.pid)
        assert start.isdigit() if platform == "linux" else ":" in start
        assert start == system.start_of(child.pid)
        child.kill()
    assert system.start_of(child.pid) == ""


def test_without_ps_nothing_is_known(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert (system.start_of(os.getpid()) == "") is (platform == "darwin")


def test_a_login_reaches_the_program_as_a_file_or_without_a_name(platform: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.json").write_text("{}")
    (tmp_path / "home/contexts").mkdir()
    (tmp_path / "made").mkdir()
    with (tmp_path / "login").open("w+b") as login:
        login.write(b"secret")
        login.seek(0)
        program._link(tmp_path / "made", tmp_path / "home", login.fileno(), b"secret")
        os.set_inheritable(login.fileno(), True)
        read = [sys.executable, "-c", "print(open('config.json').read())"]
        for _ in range(2):  # each reader from the start
            done = subprocess.run(
                read, cwd=tmp_path / "made", capture_output=True, check=True, pass_fds=[login.fileno()]
            )
            assert done.stdout == b"secret\n"
    made = tmp_path / "made/config.json"
    assert made.is_symlink() is (platform == "linux")
    assert platform == "linux" or made.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "made/contexts").is_dir()


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [("darwin", "builder", "tests"), ("win32", "builder/training_imgtool/core")], ids=lambda words: words[0]
)
def test_types_hold_elsewhere(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "--platform", *words]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


ROOMS = [f"tests/{room}" for room in ("core", "spec", "jobs", "lock", "dockerfile", "context", "engines", "cluster")]
PLUGIN = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.without_linux", "-n", "2"]
PLUGIN += ["--ignore", "tests/core/test_system.py"]  # both ways already
PLUGIN += ["--deselect", "tests/engines/test_buildx.py::test_what_buildx_is_started_with"]  # no login on disk


@pytest.mark.long
def test_the_suite_passes_without_what_linux_alone_has() -> None:
    """Rooms whose tests start no engine, in processes that lack names, `core.system` as on a Mac."""
    done = subprocess.run([*PLUGIN, *ROOMS], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
