"""docs/pictures are what scripts/pictures draws, and ask no other server for anything."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PICTURES = CHECKOUT / "docs/pictures"


def test_the_charts_are_those_of_the_results(tmp_path: Path) -> None:
    subprocess.run([sys.executable, CHECKOUT / "scripts/pictures", "charts", tmp_path], check=True, cwd=CHECKOUT)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(drawn) == 4
    assert drawn == {path.name: path.read_text() for path in PICTURES.glob("bench-*.svg")}
    assert all(len(re.findall("<rect", text)) > 3 for text in drawn.values())


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_whole_by_itself(picture: Path) -> None:
    text = picture.read_text()
    ET.fromstring(text)
    assert not re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?https?:", text)


def test_the_pictures_show_the_pages_commands() -> None:
    shown = (PICTURES / "push.svg").read_text().replace("&#160;", " ")
    assert "imgtool push" in shown
    assert "imgtool config -o config.yaml --command" in shown
    assert len(re.findall(r"mnist@sha256:[0-9a-f]{64}<", shown)) == 3
    for name in ("init", "push", "change"):
        shown = (PICTURES / f"tutorial-{name}.svg").read_text().replace("&#160;", " ")
        assert f"imgtool {'init digits' if name == 'init' else 'push'}" in shown
        assert f"(pictures/tutorial-{name}.svg)" in (CHECKOUT / "docs/tutorial.md").read_text()
    assert "(docs/pictures/push.svg)" in (CHECKOUT / "README.md").read_text().partition("\n## ")[0]
