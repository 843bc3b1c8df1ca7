"""What is remembered of a repository: per repository, through any failure of the disk."""

from __future__ import annotations

from pathlib import Path

from training_imgtool.core.reference import parse_repository
from training_imgtool.direct.registry.known_blobs import KnownBlobs

DIGEST = f"sha256:{'1' * 64}"
OTHER = f"sha256:{'2' * 64}"
HERE = parse_repository("registry.example.com/team/one")


def test_what_arrived_is_there_until_it_is_forgotten(tmp_path: Path) -> None:
    KnownBlobs(tmp_path, HERE).arrived((DIGEST, OTHER))
    known = KnownBlobs(tmp_path, HERE)
    assert known.there(DIGEST)
    known.forget((DIGEST, f"sha256:{'3' * 64}"))
    assert not KnownBlobs(tmp_path, HERE).there(DIGEST)
    assert known.there(OTHER)


def test_each_repository_has_its_own(tmp_path: Path) -> None:
    KnownBlobs(tmp_path, HERE).arrived((DIGEST,))
    for name in ("registry.example.com/team/two", "other.example.com/team/one"):
        assert not KnownBlobs(tmp_path, parse_repository(name)).there(DIGEST)


def test_a_disk_that_cannot_be_written_costs_nothing_but_memory(tmp_path: Path) -> None:
    (tmp_path / "known").write_text("a file where the folder belongs")
    known = KnownBlobs(tmp_path, HERE)
    known.arrived((DIGEST,))
    known.forget((DIGEST,))
    assert not known.there(DIGEST)
