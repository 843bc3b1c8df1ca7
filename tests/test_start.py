"""What a run with nothing to do loads: a start takes most of its time, so each module that it does not need counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.lock import LOCK_FILE, dump_lock, lock_inputs
from builder.plan import Lock
from builder.spec_file import load
from tests import plans
from tests.servers.scripted import Asked, Reply, ScriptedServer

SPEC = """\
name: start
tensorflow: "2.15.1"
python: "3.11"
accelerator: cpu
roles: {master: {}, worker: {count: 2}}
"""
UNNEEDED = (
    *("typer", "rich", "jinja2", "yaml", "urllib3", "docker", "google", "packaging", "isal", "zstandard"),
    *("ast", "dataclasses", "difflib", "inspect", "linecache", "textwrap", "tokenize", "traceback"),
    *(
        "asyncio",
        "concurrent.futures",
        "encodings.idna",
        "logging",
        "shutil",
        "subprocess",
        "tarfile",
        "tempfile",
        "tomllib",
        "zipfile",
    ),
)
PROGRAM = f"""\
import os, sys
from builder.cli import main
def leave(code):
    print(*(name for name in {UNNEEDED!r} if name in sys.modules), file=sys.stderr)
    sys.stdout.flush()
    os._exit(code)
main._leave = leave
main.main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A spec with its code and its lock."""
    folder = tmp_path / "spec"
    (folder / "trainer").mkdir(parents=True)
    (folder / "trainer" / "task.py").write_text("print()\n")
    (folder / "image.yaml").write_text(SPEC)
    inputs = lock_inputs(load(folder / "image.yaml", tmp_path / "other"))
    lock = Lock(inputs=inputs, platform="linux/amd64", variants=(plans.locked(),))
    (folder / LOCK_FILE).write_text(dump_lock(lock))
    return folder


def _there(asked: Asked) -> Reply:
    found = {
        "docker-content-digest": "sha256:" + "a" * 64,
        "content-type": "application/vnd.oci.image.manifest.v1+json",
    }
    return Reply(200, headers=found if "/manifests/" in asked.target else {})


def test_a_run_with_nothing_to_do_loads_nothing_that_it_does_not_need(folder: Path, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "IMGTOOL_CACHE": str(tmp_path / "cache")}
    env["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
    with ScriptedServer(_there) as server:
        line = [
            sys.executable,
            "-c",
            PROGRAM,
            "push",
            str(folder),
            "--registry",
            f"{server.host}/x",
            "--progress=quiet",
        ]
        first, second = (
            subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=60) for _ in range(2)
        )
    assert [first.returncode, second.returncode] == [0, 0], first.stderr + second.stderr
    assert {"yaml", "jinja2", "tomllib"} <= set(first.stderr.split())  # it looked for the right names
    assert second.stderr == "\n"
    assert first.stdout == second.stdout
    assert second.stdout.startswith("master ")
