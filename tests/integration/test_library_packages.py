"""Shared libraries that wheels need: what the table says of Debian's packages, and OpenCV in a slim base."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.debian_layers.packages import system
from training_imgtool.base.resources import data_file
from training_imgtool.base.settings import from_environment
from training_imgtool.plan.debian_packages import list_archives, resolve_packages
from training_imgtool.plan.debian_store import PackageStore
from training_imgtool.resolve.wheels.libraries import choose_package

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.long]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
SPELT = {"libsndfile.so": "libsndfile.so.1"}  # what programs call a library, and its name in the package
GONE = {("debian", "13", "libOSMesa.so.6")}  # no package of the release has it
SPEC = """\
name: opencv
tensorflow: "2.15.1"
python: "3.11"
trainer: train.py
python_packages: ["opencv-python==4.11.0.86"]
roles: {master: {}}
job: {target: compose}
"""


@pytest.mark.parametrize(
    ("distribution", "version", "source"),
    [
        ("debian", "12", "http://deb.debian.org/debian bookworm main"),
        ("debian", "13", "http://deb.debian.org/debian trixie main"),
        ("ubuntu", "22.04", "http://archive.ubuntu.com/ubuntu jammy main universe"),
        ("ubuntu", "24.04", "http://archive.ubuntu.com/ubuntu noble main universe"),
    ],
)
def test_each_package_has_the_library(distribution: str, version: str, source: str, tmp_path: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("this needs apt-get and dpkg-deb")
    names = tomllib.loads(data_file("libraries.toml").read_text(encoding="utf-8"))["packages"]
    chosen = {name: choose_package(name, distribution, version) or "" for name in names}
    chosen = {name: package for name, package in chosen.items() if (distribution, version, name) not in GONE}
    settings = from_environment({"IMGTOOL_CACHE": str(tmp_path)})
    base = system({"/etc/apt/sources.list": f"deb [trusted=yes] {source}\n"})
    resolved = resolve_packages(base, tuple(sorted({*chosen.values()})), "linux/amd64", settings)
    packages = {package.name: package for package in resolved}
    store = PackageStore(settings, list_archives(base, settings), lambda _: None)
    names = (*{*chosen.values()},)
    paths = store.fetch(tuple(packages[name] for name in names))
    files = {name: _list_names(path) for name, path in zip(names, paths, strict=True)}
    assert {name for name in chosen if SPELT.get(name, name) not in files[chosen[name]]} == set()


def _list_names(package: Path) -> set[str]:
    text = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    return {line.partition(" -> ")[0].rpartition("/")[2] for line in text.splitlines()}


@pytest.mark.engine
@pytest.mark.registry
def test_opencv_is_refused_at_lock_and_imports_with_what_the_error_says(imgtool: Run, tmp_path: Path) -> None:
    (tmp_path / "image.yaml").write_text(SPEC)
    (tmp_path / "train.py").write_text("import os\nimport cv2\n\nprint('opencv', cv2.__version__, os.getpid() > 0)\n")
    refused = imgtool("lock", cwd=tmp_path, check=False)
    assert refused.returncode == 3, refused.stderr
    assert "train.py:2:1: cv2 needs libGL.so.1" in refused.stderr
    cure = next(line for line in refused.stderr.splitlines() if "system_packages: [" in line)
    written = cure[cure.index("system_packages:") : cure.index("]") + 1]
    assert "libgl1" in written
    (tmp_path / "image.yaml").write_text(f"{SPEC}{written}\n")
    imgtool("lock", cwd=tmp_path)
    ran = imgtool("run", cwd=tmp_path, timeout=1500)
    assert "opencv 4.11.0 True" in ran.stderr + ran.stdout
