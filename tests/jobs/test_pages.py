"""What a page of docs/jobs has to show; `scripts/docs --check` says whether its output is current."""

from __future__ import annotations

import pytest

from tests.jobs.pages import FOLDER, PAGES

WANTED = {
    "ai-platform", "own-machines", "alibaba-eci", "vertex", "from-tfjob", "skypilot", "slurm",
}  # fmt: skip


def test_every_way_to_run_has_a_page() -> None:
    assert {page.stem for page in PAGES} >= WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_a_page_shows_a_spec_a_command_and_its_output(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    assert "```yaml\n# image.yaml\n" in text
    assert "```console\n$ imgtool config" in text
