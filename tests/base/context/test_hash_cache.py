"""The hashes of a context's hashes: what is worth keeping, and for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.base.context import scan as scanning
from training_imgtool.base.context import secret_files
from training_imgtool.base.context.context import Context, scan
from training_imgtool.base.context.scan import remembered_hashes
from training_imgtool.base.errors import InputError
from training_imgtool.base.json_cache import read_cached, write_cached


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files are old enough to be believed."""
    monkeypatch.setattr(scanning, "_RACY_NS", -(10**12))
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


def _scan(cache: Path, folder: Path) -> Context:
    with remembered_hashes(cache, folder) as hashes:
        return scan(folder, hashes=hashes)


def _forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> str:
        raise AssertionError("a file was read that is in the hashes")

    monkeypatch.setattr(scanning.Walk, "_hash", read)


@pytest.mark.parametrize("files", [{"model.bin": 20 << 20}, {f"{n}.txt": 3 for n in range(80)}], ids=["large", "many"])
def test_what_is_slow_to_read_is_read_once(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, int]
) -> None:
    for name, size in files.items():
        (tree / name).write_bytes(name.encode()[:1] * size)
    before = _scan(tmp_path / "cache", tree)
    with monkeypatch.context() as patch:
        _forbid_reading(patch)
        assert _scan(tmp_path / "cache", tree) == before
    name, size = next(iter(files.items()))
    (tree / name).write_bytes(b"!" * size)
    assert _scan(tmp_path / "cache", tree) != before


def test_a_small_tree_leaves_nothing(tree: Path, tmp_path: Path) -> None:
    (tree / "task.py").write_text("x")
    _scan(tmp_path / "cache", tree)
    assert not (tmp_path / "cache").exists()


def test_a_small_tree_does_not_pay_for_a_large_one(tree: Path, tmp_path: Path) -> None:
    (tree / "model.bin").write_bytes(b"x" * (20 << 20))
    _scan(tmp_path / "cache", tree)
    (tmp_path / "other").mkdir()
    with remembered_hashes(tmp_path / "cache", tmp_path / "other") as hashes:
        assert not hashes


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff"])
def test_a_damaged_memo_is_none(tree: Path, tmp_path: Path, damage: bytes) -> None:
    (tree / "model.bin").write_bytes(b"x" * (20 << 20))
    before = _scan(tmp_path / "cache", tree)
    (kept,) = (tmp_path / "cache/hashes").iterdir()
    kept.write_bytes(damage)
    assert _scan(tmp_path / "cache", tree) == before


@pytest.mark.parametrize("damage", ["x", "", "a b c d", None, 7, ["a", "b", "plain"]])
def test_a_damaged_entry_is_unknown(tree: Path, tmp_path: Path, damage: object) -> None:
    (tree / "model.bin").write_bytes(b"x" * (20 << 20))
    before = _scan(tmp_path / "cache", tree)
    (kept,) = (tmp_path / "cache/hashes").iterdir()
    write_cached(kept, dict.fromkeys(read_cached(kept), damage))
    assert _scan(tmp_path / "cache", tree) == before


def test_new_patterns_for_secrets_look_again(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older imgtool's "no secret" does not count for a newer one."""
    (tree / "model.bin").write_bytes(b"mark" + b"x" * (20 << 20))
    _scan(tmp_path / "cache", tree)
    monkeypatch.setattr(secret_files, "by_content", lambda _, head: head.startswith(b"mark"))
    monkeypatch.setattr(scanning, "PATTERNS", "newer")
    with pytest.raises(InputError, match=r"looks like a secret .*: model\.bin"):
        _scan(tmp_path / "cache", tree)
