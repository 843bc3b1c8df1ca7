"""The page of a run: what is in it, and that a browser shows it."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.test_summary import KILLED, MASTER, SUCCESS, WORKER, result
from training_imgtool.cluster.losses import Curve
from training_imgtool.cluster.report import render
from training_imgtool.cluster.summary import Failure, State
from training_imgtool.context.own_files import list_own_files

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
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
    assert "Nobody measured it." in page
    assert "no event file names a loss" in page


@pytest.mark.parametrize("values", [(0.5, 0.5), (-1.0, 3.0), (1e-9, 2e-9), (float("nan"), 1.0), (float("inf"), 1.0)])
def test_any_values_can_be_drawn(values: tuple[float, float]) -> None:
    page = render(RUN, (Curve("loss", tuple(enumerate(values))),))
    for points in re.findall(r'points="([^"]+)"', page):
        assert re.fullmatch(r"[\d. ,-]+", points)
        assert all(-1 <= float(pair.partition(",")[2]) <= 241 for pair in points.split(" "))


def test_the_page_is_no_input_of_an_image(tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text(render(RUN, LOSSES))
    (tmp_path / "own.html").write_text("<!doctype html>\n<p>of the project</p>")
    assert list_own_files(tmp_path) == {"run.html"}


@pytest.mark.skipif(BROWSER is None, reason="no chromium (apt-get install chromium)")
def test_a_browser_shows_it(tmp_path: Path) -> None:
    page, shot = tmp_path / "run.html", tmp_path / "run.png"
    page.write_text(render(RUN, LOSSES))
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--hide-scrollbars", "--window-size=1000,1400"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--screenshot={shot}", page.as_uri()]
    subprocess.run(
        command, capture_output=True, check=True, timeout=120, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    )
    colours = _count_colours(shot.read_bytes())
    for wanted in ((0x05, 0x96, 0x69), (0x9C, 0xA3, 0xAF), (0xDC, 0x26, 0x26), (0x25, 0x63, 0xEB), (0xD9, 0x77, 0x06)):
        assert colours.get(wanted, 0) > 50, f"nothing is drawn in {wanted}"


def _count_colours(png: bytes) -> dict[tuple[int, int, int], int]:
    """The pixels of a PNG of 8 bits per channel, by colour."""
    width, height, _, kind = struct.unpack_from(">IIBB", png, 16)
    size, at, data = {2: 3, 6: 4}[kind], 8, b""
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        data += png[at + 8 : at + 8 + length] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += length + 12
    raw, stride = zlib.decompress(data), width * size
    above, counted = bytearray(stride), dict[tuple[int, int, int], int]()
    for row in range(height):
        start = row * (stride + 1)
        line, how = bytearray(raw[start + 1 : start + 1 + stride]), raw[start]
        for n in range(stride):
            left, corner = (line[n - size], above[n - size]) if n >= size else (0, 0)
            line[n] = (line[n] + _predict(how, left, above[n], corner)) & 255
        for n in range(0, stride, size):
            colour = (line[n], line[n + 1], line[n + 2])
            counted[colour] = counted.get(colour, 0) + 1
        above = line
    return counted


def _predict(how: int, left: int, up: int, corner: int) -> int:
    if how == 4:
        return min((left, up, corner), key=lambda each: abs(left + up - corner - each))
    return (0, left, up, (left + up) // 2)[how]
