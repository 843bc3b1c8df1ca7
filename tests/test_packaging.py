"""What the wheel and the sdist hold: package, data, examples, and nothing that lies around in a checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.network  # the build back end comes from the index

KINDS = (  # every file of the wheel is one of these
    r"builder/(?:[a-z_]+/)?[a-z_0-9]+\.py",
    r"builder/py\.typed",
    r"builder/data/[a-z_]+\.(?:yaml|py\.txt)",
    r"builder/_data/templates/[a-z]+\.Dockerfile\.j2",
    r"builder/_data/images/[a-z-]+/image\.yaml",
    r"builder/_data/images/[a-z-]+/requirements\.txt",
    r"builder/_data/images/[a-z-]+/trainer/[a-z_]+\.py",
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
        *(str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "builder").rglob("*.py")),
        *(str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "builder/data").glob("*")),
        *(f"builder/_data/templates/{path.name}" for path in (CHECKOUT / "templates").glob("*.j2")),
        *(
            f"builder/_data/{path.relative_to(CHECKOUT)}"
            for pattern in ("image.yaml", "requirements.txt", "trainer/*.py")
            for path in (CHECKOUT / "images").glob(f"*/{pattern}")
        ),
    }
    assert expected <= set(wheel)


def test_the_metadata_names_the_command_and_the_licence(built: Path) -> None:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        assert "imgtool = builder.cli.main:main" in archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata


def test_the_sdist_holds_the_tests_and_no_state(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "tests/test_packaging.py",
        "templates/base.Dockerfile.j2",
    } <= names
    state = [
        n for n in names if re.search(r"__pycache__|\.pyc$|\.lock$|(?:^|/)config\.yaml$|^\.services|^\.venv|^demo/", n)
    ]
    assert not state
