"""What the first process of a warm container finds changed in its file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_imgtool.cluster.inside.trees import Tree, list_mounts


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("one.txt", "folder/two.txt", "mounted/three.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def look(tree: Tree, root: Path) -> tuple[list[str], list[str], list[str]]:
    tree.look()
    added, changed, removed = ([os.path.relpath(path, root) for path in paths] for paths in
                               (tree.added, tree.changed, tree.removed))  # fmt: skip
    return sorted(added), sorted(changed), sorted(removed)


def test_what_has_changed(root: Path) -> None:
    tree = Tree(str(root), [str(root / "mounted")])
    assert look(tree, root) == ([], [], [])
    (root / "mounted/three.txt").write_text("y")
    (root / "new/inner").mkdir(parents=True)
    (root / "new/inner/four.txt").write_text("x")
    (root / "one.txt").chmod(0o600)
    (root / "folder/two.txt").unlink()
    assert look(tree, root) == (["new"], ["one.txt"], ["folder/two.txt"])


def test_a_time_that_is_set_back_hides_nothing(root: Path) -> None:
    """As an engine does that puts files into the folder."""
    tree, state = Tree(str(root), ()), (root / "folder").stat()
    (root / "folder/__pycache__").mkdir()
    os.utime(root / "folder", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert look(tree, root) == (["folder/__pycache__"], [], [])


def test_paths_that_are_taken_as_they_are(root: Path) -> None:
    tree = Tree(str(root), ())
    (root / "folder/new").mkdir()
    (root / "folder/two.txt").write_text("y")
    (root / "one.txt").unlink()
    tree.renew([str(root / name) for name in ("folder/new", "folder/two.txt", "one.txt")])
    assert look(tree, root) == ([], [], [])
    (root / "folder/new/five.txt").write_text("x")
    assert look(tree, root) == (["folder/new/five.txt"], [], [])


def test_mounts() -> None:
    assert {"/proc"} <= list_mounts()
    assert "/" not in list_mounts()
