"""What COPY instructions put into an image, and what stays unclear."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.context.context import scan
from training_imgtool.dockerfile.parse import parse
from training_imgtool.verify.expected_files import CopiedFiles, find_copied_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("a")
    (tmp_path / "trainer/inner").symlink_to("task.py")
    (tmp_path / "conf.yaml").write_text("b")
    (tmp_path / "link").symlink_to("trainer")
    return tmp_path


def _copied(folder: Path, *lines: str) -> CopiedFiles:
    text = "\n".join(("FROM base AS packages", "FROM packages AS master", *lines))
    return find_copied_files(parse(text), scan(folder), {})


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (("COPY trainer/ /app/trainer/",), ["app/trainer/inner", "app/trainer/task.py"]),
        (("WORKDIR /app", "COPY conf.yaml trainer ./"), ["app/conf.yaml", "app/inner", "app/task.py"]),
        (("ENV D=/srv", "COPY *.yaml $D/"), ["srv/conf.yaml"]),
        (("WORKDIR /srv", "COPY conf.yaml /srv"), ["srv/conf.yaml"]),
    ],
)
def test_where_files_land(folder: Path, lines: tuple[str, ...], paths: list[str]) -> None:
    copied = _copied(folder, *lines)
    assert sorted(copied.files) == paths
    assert not copied.unclear


@pytest.mark.parametrize(
    "line",
    [
        "COPY conf.yaml /srv",
        "COPY link /srv/",
        "COPY link/task.py /srv/",
        "ADD conf.yaml /srv/",
        "COPY --from=x /a /srv",
    ],
)
def test_what_only_a_builder_knows_is_unclear(folder: Path, line: str) -> None:
    copied = _copied(folder, line)
    assert copied.unclear == ("srv",)
    assert not copied.files


def test_links_stay_links_and_what_another_stage_gives_is_unclear(folder: Path) -> None:
    copied = _copied(folder, "COPY trainer/ /app/trainer/", "COPY --from=x /a /app/other")
    assert copied.files["app/trainer/inner"] == "->task.py"
    assert (copied.folders, copied.unclear, copied.runs) == (("app/trainer",), ("app/other",), False)
    assert _copied(folder, "COPY trainer/ /app/", "RUN make").runs
