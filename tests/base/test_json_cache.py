"""Files of the cache: what is damaged, too large or another user's is as good as missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.other_user import NOBODY, as_nobody, open_folder
from training_imgtool.base.atomic_files import write_atomic
from training_imgtool.base.json_cache import read_cached, write_cached


def test_a_value_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "rendered/a.json"
    write_cached(path, {"texts": ["ä", 1, None]})
    assert read_cached(path) == {"texts": ["ä", 1, None]}


def test_a_note_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr("training_imgtool.base.atomic_files.os.fsync", waited.append)
    write_cached(tmp_path / "a.json", [1])
    assert not waited
    write_atomic(tmp_path / "a.json", b"[2]")
    assert len(waited) == 2  # the file, and its folder


@pytest.mark.parametrize("damage", [b"", b"\n", b'{"a', b"\0" * 100, b"\xff"])
def test_damage_is_a_miss(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "a.json").write_bytes(damage)
    assert read_cached(tmp_path / "a.json") is None


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "cache/a.json"
    path.parent.mkdir()
    victim.write_text("precious")
    path.symlink_to(victim)
    write_cached(path, [1])
    assert victim.read_text() == "precious"
    assert read_cached(path) == [1]


def test_what_is_too_large_is_not_written(tmp_path: Path) -> None:
    write_cached(tmp_path / "a.json", "x" * 300, limit=200)
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_what_others_may_write_is_not_believed(tmp_path: Path, mode: int) -> None:
    write_cached(tmp_path / "a.json", [1])
    (tmp_path / "a.json").chmod(mode)
    assert read_cached(tmp_path / "a.json") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_another_user_wrote_is_not_believed_but_roots_is() -> None:
    with open_folder() as folder:
        path = folder / "a.json"
        write_cached(path, [1])
        path.chmod(0o644)
        assert as_nobody(lambda: str(read_cached(path))) == "[1]"
        os.chown(path, NOBODY, NOBODY)
        assert read_cached(path) is None
