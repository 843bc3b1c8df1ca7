"""The output on the pages of docs/jobs is what the code prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.pages import FOLDER, PAGES, current

WANTED = {
    "ai-platform-flags", "ai-platform-config", "three-images", "own-machines", "alibaba-eci", "vertex", "tpu-worker",
    "from-tfjob", "skypilot", "slurm",
}  # fmt: skip


def test_every_way_to_run_has_a_page() -> None:
    assert {page.stem for page in PAGES} >= WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_a_page_shows_a_spec_a_command_and_its_output(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    assert "```yaml\n# image.yaml\n" in text
    assert "```console\n$ imgtool config" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_output_is_current(page: Path) -> None:
    text = page.read_text()
    assert text == current(text), "python -m tests.jobs.pages"
