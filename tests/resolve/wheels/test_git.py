"""Git repositories as sources: what a revision names, and a checkout of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.servers.git_server import commit, run_git
from training_imgtool.base.errors import InputError
from training_imgtool.resolve.wheels.sources.git import Git


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


def test_a_commit_is_checked_out_with_its_tags_and_submodules(git: Git, tmp_path: Path) -> None:
    commit(tmp_path / "inner", {"a": "1"})
    repository = tmp_path / "repository"
    commit(repository, {"b": ""})
    run_git(repository, "-c", "protocol.file.allow=always", "submodule", "add", str(tmp_path / "inner"), "sub")
    made = commit(repository, {})
    run_git(repository, "tag", "v1")
    commit(repository, {"b": "later"})
    (tmp_path / ".gitconfig").write_text("[protocol.file]\n\tallow = always\n")
    git.check_out(repository.as_uri(), made, tmp_path / "out")
    assert (tmp_path / "out/sub/a").read_text() == "1"
    assert (tmp_path / "out/b").read_text() == ""
    assert run_git(tmp_path / "out", "describe", "--tags") == "v1"


def test_a_pointer_of_git_lfs_is_no_file(git: Git, tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n"
    made = commit(tmp_path / "repository", {"data/weights.bin": pointer})
    with pytest.raises(InputError, match=r"data/weights\.bin is stored in Git LFS"):
        git.check_out((tmp_path / "repository").as_uri(), made, tmp_path / "out")
