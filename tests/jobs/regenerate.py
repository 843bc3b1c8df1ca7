"""Writes the golden files anew: `python -m tests.jobs.regenerate`. Read the difference before committing it."""

from __future__ import annotations

from pathlib import Path

from tests.jobs.specs import GOLDENS, golden_name, text_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "jobs"


def main() -> None:
    for old in GOLDEN.iterdir():
        old.unlink()
    for name in GOLDENS:
        (GOLDEN / golden_name(name)).write_text(text_of(name))


if __name__ == "__main__":
    main()
