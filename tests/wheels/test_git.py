"""Git repositories as sources: what a revision names, and the same archive on every machine."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from tests.servers.git_server import commit, run_git
from training_imgtool.core.errors import InputError
from training_imgtool.wheels.sources.git import Git
from training_imgtool.wheels.sources.pack import PackedCode, TreeWriter, hash_folder, pack_folder


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})


def test_every_kind_of_revision(git: Git, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    first = commit(repository, {"a.txt": "1"})
    run_git(repository, "tag", "v1")
    run_git(repository, "tag", "-a", "annotated", "-m", "a")
    run_git(repository, "branch", "release/1.x")
    second = commit(repository, {"a.txt": "2"})
    url = repository.as_uri()
    revisions = ("v1", "annotated", "release/1.x", first, "main", "")
    assert [git.resolve(url, revision) for revision in revisions] == [first, first, first, first, second, second]
    with pytest.raises(InputError, match="no branch and no tag none"):
        git.resolve(url, "none")


def _members(archive: io.BytesIO) -> dict[str, tuple[int, str, bytes]]:
    """Mode, link and content of each member by name."""
    members = {}
    with tarfile.open(fileobj=io.BytesIO(archive.getvalue())) as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isfile() else None
            members[member.name] = (member.mode, member.linkname, stream.read() if stream else b"")
    return members


def test_a_commit_packs_like_its_folder_whatever_git_is_set_to(git: Git, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    attributes = "* text eol=crlf export-ignore\n"
    commit(repository, {"pkg/a b.txt": "line\n", "pkg/deep/ü.py": "$Id$\n", ".gitattributes": attributes})
    (repository / "pkg/link").symlink_to("a b.txt")
    (repository / "pkg/run.sh").write_text("echo\n")
    (repository / "pkg/run.sh").chmod(0o755)
    made = commit(repository, {})
    (tmp_path / ".gitconfig").write_text("[core]\n\tautocrlf = true\n")
    archive, folder = io.BytesIO(), io.BytesIO()
    git.read(repository.as_uri(), made, "pkg", TreeWriter(archive))
    pack_folder(repository / "pkg", folder)
    assert _members(archive) == _members(folder)
    assert _members(archive)["source/run.sh"] == (0o755, "", b"echo\n")


def test_a_submodule_is_named(git: Git, tmp_path: Path) -> None:
    inner = commit(tmp_path / "inner", {"a": ""})
    repository = tmp_path / "repository"
    commit(repository, {"b": ""})
    run_git(repository, "update-index", "--add", "--cacheinfo", f"160000,{inner},sub")
    run_git(repository, "commit", "-m", "sub")
    with pytest.raises(InputError, match="sub is a submodule"):
        git.read(repository.as_uri(), run_git(repository, "rev-parse", "HEAD"), "", TreeWriter(io.BytesIO()))


def test_a_file_of_git_lfs_is_named(git: Git, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    made = commit(repository, {"pkg/__init__.py": "", "pkg/weights.bin": pointer, "other/__init__.py": ""})
    with pytest.raises(InputError, match=r"pkg/weights.bin is kept by Git LFS") as caught:
        git.read(repository.as_uri(), made, "", TreeWriter(io.BytesIO()))
    assert "git lfs pull" in str(caught.value.hint)
    git.read(repository.as_uri(), made, "other", TreeWriter(io.BytesIO()))


def test_the_hash_of_a_folder_depends_on_names_modes_and_contents_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/build").mkdir()
    (tmp_path / "b/build/c.py").write_text("y")
    before = hash_folder(tmp_path)
    os.utime(tmp_path / "a.py", (1, 1))
    assert hash_folder(tmp_path) == before
    (tmp_path / "a.py").chmod(0o755)
    executable = hash_folder(tmp_path)
    (tmp_path / "b/build/c.py").write_text("z")
    assert len({before, executable, hash_folder(tmp_path)}) == 3


@pytest.mark.parametrize(
    ("revision", "version"),
    [("@v1.2", "1.2"), ("@release/2.0rc1", "2.0rc1"), ("@main", ""), ("@" + "1" * 40, ""), ("@1234567", ""), ("", "")],
)
def test_a_tag_may_name_the_version(revision: str, version: str) -> None:
    code = PackedCode(path=Path("source.tar"), sha256="", origin=f"git+https://host/p{revision}#subdirectory=a")
    assert code.version == version
