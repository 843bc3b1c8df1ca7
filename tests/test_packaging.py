"""What the wheel and the sdist hold: package, data, examples, and nothing that lies around in a checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.network  # the build back end comes from the index

KINDS = (  # every file of the wheel is one of these
    r"training_imgtool/(?:[a-z_]+/){0,3}[a-z_0-9]+\.py",
    r"training_imgtool/py\.typed",
    r"imgtool_(?:debian_layers|project_reader)/(?:[a-z_0-9]+\.py|py\.typed|README\.md|(?:names|scripts)\.toml)",
    r"training_imgtool/data/(?:machines/)?[a-z_]+\.(?:yaml|toml|json|py\.txt)",
    r"training_imgtool/jobs/rules/(?:[a-z_]+\.(?:yaml|json)|README\.md)",
    r"training_imgtool/_data/templates/[a-z]+\.Dockerfile\.j2",
    r"training_imgtool/_data/images/[a-z-]+/[a-z-]+\.yaml",
    r"training_imgtool/_data/images/[a-z-]+/requirements\.txt",
    r"training_imgtool/_data/images/[a-z-]+/trainer/[a-z_]+\.py",
    r"training_imgtool-[0-9.]+\.data/data/share/man/man1/imgtool\.1",
    r"training_imgtool-[0-9.]+\.dist-info/(?:METADATA|RECORD|WHEEL|entry_points\.txt|licenses/LICENSE)",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "build", "--quiet", "--out-dir", folder, CHECKOUT], check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> list[str]:
    """The names in the wheel."""
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_the_wheel_holds_only_known_kinds_of_files(wheel: list[str]) -> None:
    strange = [name for name in wheel if not any(re.fullmatch(kind, name) for kind in KINDS)]
    assert not strange


def test_the_wheel_holds_every_module_and_data_file(wheel: list[str]) -> None:
    expected = {
        *(str(path.relative_to(CHECKOUT / "builder")) for path in (CHECKOUT / "builder").rglob("*.py")),
        *(str(path.relative_to(CHECKOUT / "builder")) for path in (CHECKOUT / "builder").glob("*/data/**/*.*")),
        "imgtool_debian_layers/scripts.toml",
        "imgtool_project_reader/names.toml",
        *(str(path.relative_to(CHECKOUT / "builder")) for path in (CHECKOUT / "builder").glob("*/jobs/rules/*.[yj]*")),
        *(f"training_imgtool/_data/templates/{path.name}" for path in (CHECKOUT / "templates").glob("*.j2")),
        *(
            f"training_imgtool/_data/{path.relative_to(CHECKOUT)}"
            for pattern in ("*.yaml", "requirements.txt", "trainer/*.py")
            for path in (CHECKOUT / "images").glob(f"*/{pattern}")
            if path.name != "config.yaml"  # a job file that somebody wrote there; git ignores it
        ),
    }
    assert expected <= set(wheel)
    assert any(name.endswith(".data/data/share/man/man1/imgtool.1") for name in wheel)


def test_the_metadata_names_the_command_and_the_licence(built: Path) -> None:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        commands = archive.read(f"{info}/entry_points.txt").decode().splitlines()
        metadata = archive.read(f"{info}/METADATA").decode()
    assert {f"{name} = training_imgtool.cli.main:main" for name in ("imgtool", "training-imgtool")} <= set(commands)
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata


def test_strangers_of_the_same_names_do_no_harm(built: Path, tmp_path: Path) -> None:
    """PyPI's `builder` and `imgtool` in the same environment, and the user's own modules on PYTHONPATH."""
    (path,) = built.glob("*.whl")
    uv, python = Path(sys.executable).parent / "uv", tmp_path / "venv/bin/python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True, timeout=300)
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, "--no-deps", "builder"], check=True, timeout=300)  # it needs a package for Python 2
    subprocess.run([*install, "imgtool"], check=True, timeout=300)
    subprocess.run([*install, path], check=True, timeout=300)
    own = tmp_path / "own"
    own.mkdir()
    for name in ("builder", "trainer"):
        (own / f"{name}.py").write_text("raise SystemExit('the wrong module was imported')\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(own)}
    for command in (
        [python.with_name("training-imgtool")],
        [python.with_name("imgtool")],
        [python, "-m", "training_imgtool"],
    ):
        done = subprocess.run([*command, "--version"], env=env, cwd=own, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout.startswith("imgtool ")
    found = subprocess.run(
        [python.with_name("training-imgtool"), "init", "demo"],
        env=env,
        cwd=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert (own / "demo/image.yaml").is_file()
