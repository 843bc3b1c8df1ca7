"""What this machine remembers of a repository: per repository, through any failure of the disk."""

from __future__ import annotations

from pathlib import Path

from training_imgtool.core.reference import parse_repository
from training_imgtool.direct.registry.memory import RepositoryMemory, tag_of_stage

DIGEST = f"sha256:{'1' * 64}"
OTHER = f"sha256:{'2' * 64}"
HERE = parse_repository("registry.example.com/team/one")
STAGE = tag_of_stage(HERE, "packages", "0" * 64)


def test_a_blob_is_remembered_until_it_is_forgotten(tmp_path: Path) -> None:
    RepositoryMemory(tmp_path, HERE).add_blobs((DIGEST, OTHER))
    memory = RepositoryMemory(tmp_path, HERE)
    assert memory.has_blob(DIGEST)
    memory.forget_blobs((DIGEST, f"sha256:{'3' * 64}"))
    assert not RepositoryMemory(tmp_path, HERE).has_blob(DIGEST)
    assert memory.has_blob(OTHER)


def test_each_repository_has_its_own(tmp_path: Path) -> None:
    RepositoryMemory(tmp_path, HERE).add_blobs((DIGEST,))
    for name in ("registry.example.com/team/two", "other.example.com/team/one"):
        other = RepositoryMemory(tmp_path, parse_repository(name))
        assert not other.has_blob(DIGEST)
        other.clear()
    assert RepositoryMemory(tmp_path, HERE).has_blob(DIGEST)


def test_clear_forgets_blobs_tags_and_stages(tmp_path: Path) -> None:
    memory = RepositoryMemory(tmp_path, HERE)
    memory.add_blobs((DIGEST,))
    memory.add_tag("worker-1")
    memory.stage_file(STAGE).write_text("{}")
    assert memory.has_tag("worker-1")
    assert memory.has_stage(STAGE)
    memory.clear()
    memory = RepositoryMemory(tmp_path, HERE)
    assert [memory.has_blob(DIGEST), memory.has_tag("worker-1"), memory.has_stage(STAGE)] == [False] * 3


def test_a_run_without_the_cache_believes_nothing_and_takes_notes(tmp_path: Path) -> None:
    RepositoryMemory(tmp_path, HERE).add_blobs((DIGEST,))
    without = RepositoryMemory(tmp_path, HERE, believe=False)
    assert not without.has_blob(DIGEST)
    without.add_blobs((OTHER,))
    assert RepositoryMemory(tmp_path, HERE).has_blob(OTHER)


def test_a_disk_that_cannot_be_written_costs_nothing_but_memory(tmp_path: Path) -> None:
    (tmp_path / "known").write_text("a file where the folder belongs")
    memory = RepositoryMemory(tmp_path, HERE)
    memory.add_blobs((DIGEST,))
    memory.forget_blobs((DIGEST,))
    memory.clear()
    assert not memory.has_blob(DIGEST)
