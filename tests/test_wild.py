"""`scripts/wild`: projects of others as they are, every exit code, and those that cannot be had skipped by name."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests.servers.git_server import commit, run_git
from training_imgtool.spec.decode import Reader
from training_imgtool.spec.model import ImageSpec
from training_imgtool.yamlfile.reader import parse, read_bytes

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/wild"
SPECS = sorted((Path(__file__).resolve().parent / "wild").glob("*/*.yaml"))


def test_a_project_is_taken_as_it_is_and_a_missing_one_is_named(tmp_path: Path) -> None:
    made = commit(tmp_path / "sources/team+code", {"sub/train.py": "", "README": "text\n"})
    for name, text in {
        "code/project.toml": f'repository = "team/code"\ncommit = "{made}"\nfolder = "sub"\n',
        "code/image.yaml": "name: m\n",
        "code/generate.py": "open('data.csv', 'w').write('1,2')\n",
        "gone/project.toml": 'repository = "../nothing"\n',
    }.items():
        path = tmp_path / "projects" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    arguments = ("projects", "--sources", "sources", "--work", "work")
    command = (sys.executable, SCRIPT, *arguments)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0] == "code/image.yaml: lock 3"
    assert done.stdout.splitlines()[1].startswith("gone: skipped: ")
    assert done.returncode == 1
    assert "missing: expected a full release" in (tmp_path / "work/code.log").read_text()
    assert run_git(tmp_path / "work/code", "diff", "HEAD") == ""
    assert (tmp_path / "work/code/sub/data.csv").read_text() == "1,2"


def test_an_archive_of_the_index_is_unpacked_and_one_with_another_hash_is_not(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name in ("my_code-1.2/train.py", "my_code-1.2/setup.py"):
            member = tarfile.TarInfo(name)
            member.size = len(code := b"raise SystemExit(9)\n")
            tar.addfile(member, io.BytesIO(code))
    sha256 = hashlib.sha256(content.getvalue()).hexdigest()
    for name, data in {
        "links/my_code-1.2.tar.gz": content.getvalue(),
        "links/my_code-1.2.1.tar.gz": b"another",
        "projects/mine/project.toml": f'archive = "My.Code==1.2"\nsha256 = "{sha256}"\n'.encode(),
        "projects/mine/image.yaml": b"name: m\n",
        "projects/other/project.toml": f'archive = "My.Code==1.2"\nsha256 = "{0:064}"\n'.encode(),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    command = (sys.executable, SCRIPT, "projects", "--work", "work")
    environ = {**os.environ, "UV_FIND_LINKS": str(tmp_path / "links"), "UV_DEFAULT_INDEX": tmp_path.as_uri()}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[:2] == [
        "mine/image.yaml: lock 3",
        f"other: skipped: no index of this machine has My.Code==1.2 with sha256 {0:064}",
    ]
    assert (tmp_path / "work/mine/train.py").exists()


@pytest.mark.parametrize("path", SPECS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_spec_is_valid_and_its_project_is_an_archive_with_a_hash(path: Path, tmp_path: Path) -> None:
    for name in ("pyproject.toml", "setup.py"):
        (tmp_path / name).touch()
    reader = Reader(str(path), tmp_path, root=ImageSpec, allowed=frozenset())
    reader.read(ImageSpec, parse(read_bytes(path), str(path), what="spec"), "")
    assert not reader.errors
    project = tomllib.loads((path.parent / "project.toml").read_text())
    assert set(project) <= {"archive", "sha256", "needs", "folder"}
    assert "==" in project["archive"]
    assert len(bytes.fromhex(project["sha256"])) == 32
    subprocess.run((sys.executable, path.with_name("generate.py")), cwd=tmp_path, check=True)
    assert len(list(tmp_path.iterdir())) == 3
