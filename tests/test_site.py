"""The site: built strictly, every page in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.network]
CHECKOUT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the site's programs."""
    folder = tmp_path_factory.mktemp("site-tools")
    groups = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["dependency-groups"]
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, folder], check=True)
    install: list[str | Path] = [
        UV,
        "pip",
        "install",
        "-q",
        "--python",
        folder / "bin/python",
        *groups["site"],
    ]
    subprocess.run(install, check=True, timeout=600)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def site(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "site"
    command: list[str | Path] = [python, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", out]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    pages = [path.relative_to(CHECKOUT / "docs").with_suffix(".html") for path in (CHECKOUT / "docs").rglob("*.md")]
    names = {str(path).replace("README", "index") for path in pages}
    menu = (site / "index.html").read_text().partition("</nav>")
    links = set(re.findall(r'href="([^"#:]+\.html)"', "".join(menu)))
    assert not {name for name in names if not (site / name).is_file()}
    assert not names - links - {"index.html"}
