"""The page of a run: what is in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.local.test_summary import KILLED, MASTER, SUCCESS, WORKER, result
from training_imgtool.base.context.own_files import list_own_files
from training_imgtool.local.losses import Curve
from training_imgtool.local.report import render
from training_imgtool.local.summary import Failure, State

MASTERS = replace(
    result(MASTER),
    spans=((0.0, 12.34),),
    memory=tuple((float(second), 200_000_000 + second * 10_000_000) for second in range(12)),
)
WORKERS = replace(
    result(WORKER, State.STOPPED),
    spans=((0.1, 5.04), (5.5, 13.4)),
    memory=tuple((float(second), 300_000_000) for second in range(13)),
    restarts=1,
)
RUN = replace(SUCCESS, replicas=(MASTERS, WORKERS), deaths=(KILLED,), notes=("a note with <b>",))
LOSSES = (
    Curve("master loss", tuple((second + 0.5, 2.0 / (second + 1)) for second in range(12))),
    Curve("worker-0 <loss>", ((1.0, 1.0),)),
)


def test_the_page_has_the_run_in_charts_and_words() -> None:
    page = render(RUN, LOSSES)
    assert page.count("<svg ") == 3
    assert 'mnist as vertex: <span class="good">succeeded</span>' in page
    assert [page.count(f'<rect class="{kind}"') for kind in ("exited", "failed", "stopped")] == [1, 1, 1]
    assert page.count('<line class="death"') == 3
    assert "worker-0 was killed at 5.0 s: it is restarted" in page
    assert "limit 1.07 GB" not in page.partition("<h2>Memory")[2].partition("<h2>")[0]  # far above what was used
    assert "master loss: 2 to 0.1667" in page
    assert "worker-0 &lt;loss&gt;" in page
    assert "a note with &lt;b&gt;" in page
    assert "newest checkpoint checkpoints/ckpt-9" in page


def test_the_page_asks_nobody_for_anything() -> None:
    page = render(RUN, LOSSES)
    assert not re.findall(r"https?:|//\w|<script|<link|<img|@import|url\(", page)
    assert "default-src 'none'" in page


def test_a_run_that_failed_at_once() -> None:
    failure = Failure(name="master", message="master exited 1", last_lines=("Traceback <x>", "ValueError"))
    bare = replace(result(MASTER), exit_code=1, peak_memory=None, spans=())
    page = render(replace(SUCCESS, replicas=(bare,), failure=failure, seconds=0.0, written=()), ())
    assert '<span class="bad">failed: master exited 1</span>' in page
    assert "Traceback &lt;x&gt;\nValueError" in page
    assert "The engine reported no memory use." in page
    assert "No line of the output contains a loss." in page


@pytest.mark.parametrize(
    "values",
    [
        *((0.5, 0.5), (-1.0, 3.0), (1e-9, 2e-9), (5e-324, 5e-324), (9e299, -9e299), (1e308, -1e308)),
        *((float("nan"), 1.0), (float("inf"), 1.0)),
    ],
)
def test_any_values_can_be_drawn(values: tuple[float, float]) -> None:
    page = render(RUN, (Curve("loss", tuple(enumerate(values))),))
    for points in re.findall(r'points="([^"]+)"', page):
        assert re.fullmatch(r"[\d. ,-]+", points)
        assert all(-1 <= float(pair.partition(",")[2]) <= 241 for pair in points.split(" "))


def test_the_page_is_no_input_of_an_image(tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text(render(RUN, LOSSES))
    (tmp_path / "own.html").write_text("<!doctype html>\n<p>of the project</p>")
    assert list_own_files(tmp_path) == {"run.html"}
