"""Large blobs that several jobs send at the same time: who waits, for how long, and who sends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.support import Clock, Events, layer, machine, quick_retry
from tests.servers.memory_registry import MemoryRegistry
from tests.servers.scripted import Asked, Reply
from training_imgtool.core.reference import parse_repository
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import sha256_digest
from training_imgtool.registry.upload import How

CONTENT = bytes(5 << 20)
OTHER = bytes(6 << 20)
DIGEST = layer(CONTENT).digest


def _claim(digest: str, second: int) -> str:
    return sha256_digest(f"imgtool sends {digest} at {second}\n".encode())


class _Job:
    """A client of a registry, on a clock that moves only when it sleeps."""

    def __init__(self, folder: Path, server: MemoryRegistry) -> None:
        self.server, self.clock, self.events = server, Clock(), Events()
        retry = quick_retry(self.clock)
        self.clients = Registries(machine(folder), self.events, retry=retry, idle_seconds=5.0, now=self.clock)
        self.repository = parse_repository(f"{server.host}/team/demo")
        self.blobs = server.blobs.setdefault("team/demo", {})

    def upload(self, content: bytes = CONTENT) -> How:
        registry = self.clients.at(self.repository)
        return registry.upload(self.repository, layer(content), lambda: iter((content,)), progress=self.events).how

    def sent(self) -> list[int]:
        """The sizes of what went up, in order."""
        return [len(asked.body) for asked in self.server.requests if asked.method == "PUT"]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[_Job]:
    with MemoryRegistry() as server:
        job = _Job(tmp_path, server)
        with job.clients:
            yield job


def test_a_job_claims_what_it_sends_and_a_small_blob_needs_no_claim(job: _Job) -> None:
    assert job.upload() is How.UPLOADED
    assert _claim(DIGEST, 1000) in job.blobs
    assert job.sent() == [len(b"imgtool sends  at 1000\n") + len(DIGEST), len(CONTENT)]
    job.server.clear()
    assert job.upload(b"small") is How.UPLOADED
    assert job.server.counted() == {"HEAD blobs": 1, "POST blobs": 1, "PUT blobs": 1}


def test_a_job_waits_for_what_another_sends(job: _Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.blobs[_claim(DIGEST, 1000)] = b""
    sleep = job.clock.sleep

    def arrive(seconds: float) -> None:
        sleep(seconds)
        if job.clock.now > 1005:
            job.blobs[DIGEST] = CONTENT

    monkeypatch.setattr(job.clock, "sleep", arrive)
    job.clients = Registries(
        machine(Path("/nonexistent")), job.events, retry=quick_retry(job.clock), idle_seconds=5.0, now=job.clock
    )
    assert job.upload() is How.PRESENT
    assert job.sent() == []
    assert job.clock.now < 1008
    assert [note for note in job.events.notes if "another job sends it" in note] == job.events.notes
    assert len(job.events.notes) == 1
    assert job.server.counted()["DELETE blobs"] == 1  # the upload that it had opened


def test_the_claim_of_a_job_that_died_ends(job: _Job) -> None:
    job.blobs[_claim(DIGEST, 1000)] = b""
    assert job.upload() is How.UPLOADED
    assert 1020 <= job.clock.now < 1023


def test_nobody_waits_for_ever_and_only_once(job: _Job) -> None:
    def claimed(asked: Asked, truth: object) -> Reply | None:
        del truth
        is_question = asked.method == "HEAD" and DIGEST not in asked.target and layer(OTHER).digest not in asked.target
        return Reply(200, b"") if is_question else None

    job.server.lie = claimed
    assert job.upload() is How.UPLOADED
    assert 1060 < job.clock.now < 1070
    assert job.upload(OTHER) is How.UPLOADED
    assert job.clock.now < 1070


def test_a_claim_is_renewed_while_content_flows(job: _Job) -> None:
    def slow() -> Iterator[bytes]:
        for _ in range(5):
            job.clock.sleep(8)
            yield CONTENT[: 1 << 20]

    registry = job.clients.at(job.repository)
    assert registry.upload(job.repository, layer(CONTENT), slow).how is How.UPLOADED
    assert {_claim(DIGEST, second) for second in (1000, 1020, 1040)} <= job.blobs.keys()


def test_a_registry_that_takes_no_claim_gets_the_blob(job: _Job) -> None:
    small = len(CONTENT) // 2
    job.server.lie = lambda asked, _: Reply(405) if asked.method == "PUT" and len(asked.body) < small else None
    assert job.upload() is How.UPLOADED
    assert job.blobs.keys() == {DIGEST}


def test_a_blob_that_came_before_the_claim_is_not_sent(job: _Job) -> None:
    def arrives(asked: Asked, truth: object) -> Reply | None:
        del truth
        if asked.method == "PUT":
            job.blobs[DIGEST] = CONTENT
        return None

    job.server.lie = arrives
    assert job.upload() is How.PRESENT
    assert len(job.sent()) == 1
