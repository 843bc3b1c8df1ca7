"""The wheel, installed alone: it renders in an empty folder, with nothing of the checkout in reach."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.network, pytest.mark.slow]
CHECKOUT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `imgtool` of a fresh environment that has the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", folder, CHECKOUT], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    subprocess.run([UV, "pip", "install", "--quiet", "--python", folder / "venv", wheel], check=True, timeout=300)
    return folder / "venv/bin/imgtool"


def run(program: Path, *arguments: str, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run([program, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_it_renders_with_a_lock_and_nothing_else(installed: Path, services_env: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(
        CHECKOUT / "images/mnist", tmp_path / "mnist", ignore=shutil.ignore_patterns("*.lock", "config.yaml")
    )
    run(installed, "lock", "mnist", cwd=tmp_path, env=services_env)
    assert (tmp_path / "mnist/image.lock").is_file()
    offline = {name: value for name, value in services_env.items() if name in {"HOME", "PATH", "IMGTOOL_MIRRORS"}} | {
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "IMGTOOL_CACHE": str(tmp_path / "c"),
    }
    text = run(installed, "render", "mnist", "--locked", "--role", "worker", cwd=tmp_path, env=offline)
    assert text.count("\nFROM ") == 5
    assert "LABEL dev.imgtool.key=" in text
    assert str(CHECKOUT) not in text
