"""The table of `verify`, and the lines of what fails."""

from __future__ import annotations

from training_imgtool.base.reference import Digest, parse_repository
from training_imgtool.model.spec import Role
from training_imgtool.verify.findings import Accepted, ImageReport, mismatch, ok, unproven
from training_imgtool.verify.report import as_data, as_text, list_failures


def _digest(digit: str) -> Digest:
    return parse_repository("example.com/r").digest(f"sha256:{digit * 64}")


REPORTS = (
    ImageReport(role=Role.MASTER, image=_digest("1"), findings=(ok("base", "1 layer"), ok("layers", "2"))),
    ImageReport(
        role=Role.WORKER,
        image=_digest("2"),
        findings=(
            ok("base", "1 layer"),
            unproven("bytecode", "another Python", Accepted.BYTECODE),
            mismatch("layers", "layer 2 (COPY a): /app/\x1b[31mx differs", "what was made here"),
        ),
    ),
)


def test_the_table_has_what_is_alike_once() -> None:
    assert as_text(REPORTS).splitlines() == [
        "CHECK     ROLE    RESULT      FOUND (EXPECTED)",
        "base      all     ok          1 layer",
        "layers    master  ok          2",
        "layers    worker  MISMATCH    layer 2 (COPY a): /app/x differs (what was made here)",
        "bytecode  worker  NOT PROVEN  another Python",
    ]
    narrow = as_text(REPORTS, 60).splitlines()
    assert max(map(len, narrow)) <= 60
    assert len(narrow) > 5


def test_mismatches_come_first() -> None:
    assert list_failures(REPORTS) == (
        "worker: layers: found layer 2 (COPY a): /app/x differs; expected what was made here",
        "worker: bytecode: not proven: another Python",
    )
    assert [image["ok"] for image in as_data(REPORTS)] == [True, False]
