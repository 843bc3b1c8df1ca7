"""Writes the golden files anew: `python -m tests.jobs.regenerate`. Read the difference before committing it."""

from __future__ import annotations

from pathlib import Path

from tests.jobs.specs import golden_name, images, pairs
from training_imgtool.jobs import job_data
from training_imgtool.jobs.text import dump

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "jobs"


def main() -> None:
    wanted = {}
    for name, case, target in pairs():
        job = job_data(case.spec, images(case.spec), target, case.job_options())
        wanted[golden_name(name)] = dump(job)
    for old in GOLDEN.iterdir():
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (GOLDEN / name).write_text(text)


if __name__ == "__main__":
    main()
