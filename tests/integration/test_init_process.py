"""The init below which programs start: a container that is stopped ends at once, with the program's own answer."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.verify_world import open_toy
from tests.oci.direct.wheels import INIT_VERSION, download

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.network, pytest.mark.slow]
WAITS = "import time; print('begun', flush=True); time.sleep(60)"
SAVES = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); " + WAITS


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.strip()


def test_a_stopped_program_gets_its_sigterm(
    registry_address: str, services_env: dict[str, str], tmp_path: Path
) -> None:
    (init,) = download(tmp_path / "init", f"dumb-init=={INIT_VERSION}")
    with open_toy(registry_address, services_env, tmp_path, init) as toy:
        for code, expected in ((WAITS, 143), (SAVES, 7)):
            entry = ["--entrypoint", "/opt/venv/bin/dumb-init", str(toy.good), "--single-child", "/opt/venv/bin/python"]
            container = _docker("run", "--detach", *entry, "-c", code)
            try:
                while "begun" not in _docker("logs", container):
                    time.sleep(0.1)
                begun = time.monotonic()
                _docker("stop", "--time", "20", container)
                assert time.monotonic() - begun < 5
                assert int(_docker("inspect", "--format", "{{.State.ExitCode}}", container)) == expected
            finally:
                _docker("rm", "--force", container)
