"""Every frame of push, verify and run on terminals of 60, 80 and 120 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.direct.wheels import as_wheel
from tests.integration.push_world import IMGTOOL, Machine, Project, Wheels, make_base
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry
from tests.servers.simple_index import SimpleIndex, serving
from tests.terminal import Recording, record

WIDTHS = (60, *(pytest.param(columns, marks=pytest.mark.long) for columns in (80, 120)))
_ROW = re.compile(
    r"[\u2800-\u28ff·] (?P<subject>packages cpu|lock cpu|base \S+|\w+) +(?:waiting$|[━┄]| [\d.]|\S+.* [\dhm.]+s$)"
)
_BYTES = re.compile(r"(?P<done>[\d.]+)(?:/(?P<about>~?)(?P<total>[\d.]+))? (?P<unit>[kMG]?B)(?!/s)(?= |$)")
_WHOLE = re.compile(  # to be copied, so never cut
    r"(?:\w+ )?(?:master|worker|ps) \S+@sha256:[0-9a-f]{64}$|Error: |job directory: /|note: next: |\[run\] "
)
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


@dataclass(frozen=True)
class Row:
    subject: str
    done: float | None
    total: float | None
    about: bool


def rows_of(frame: tuple[str, ...]) -> list[Row]:
    """The rows of a frame that are in progress or wait."""
    found = []
    for line in frame:
        if re.match(r"[\u2800-\u28ff·] ", line):
            row = _ROW.match(line)
            assert row, f"a row without a subject or an end: {line!r}"
            bar = re.search(r"[━┄]+ +(.*)|  +(\d[\d.]* [kMG]?B .*)", line[row.end("subject") :])
            moved = _BYTES.search(bar[1] or bar[2]) if bar else None
            unit = _UNITS[moved["unit"]] if moved else 1
            done = float(moved["done"]) * unit if moved else None
            total = float(moved["total"]) * unit if moved and moved["total"] else None
            found.append(Row(row["subject"], done, total, bool(moved and moved["about"])))
    return found


def check_frames(shown: Recording, columns: int, **steps: tuple[float, ...]) -> list[list[Row]]:
    """Checks what holds of any recording; returns the rows of its frames.

    Args:
        shown: the recording.
        columns: of the terminal.
        steps: by subject, the totals of its steps in their order, where it has several: a frame may be the first of a
            later one, since the screen is drawn ten times a second, or less often on a busy machine.
    """
    for frame in shown.unwrapped:
        for line in filter(None, frame):
            assert len(line) <= columns or _WHOLE.match(line), f"wider than {columns}: {line!r}"
            assert len(line) <= columns - 4 or not re.match(r"[\u2800-\u28ff·] ", line), f"no room for ^C: {line!r}"
    every = [rows_of(frame) for frame in shown.unwrapped]
    assert [rows_of(frame) for frame in shown.frames] == every, "what wraps moves the rows"
    assert not every[-1], "no row stays"
    last: dict[str, Row] = {}
    for number, rows in enumerate(every):
        names = [row.subject for row in rows]
        assert len(names) == len(set(names)), f"frame {number} has a row twice: {names}"
        for row in rows:
            before = last.get(row.subject)
            if row.done is None:
                continue
            assert row.total is not None, f"frame {number}: no total, and no ~: {row}"
            assert row.done <= row.total, f"frame {number}: {row}"
            if before and row.total != before.total and not before.about:
                totals = steps.get(row.subject, ())
                assert {before.total, row.total} <= {*totals}, f"frame {number}: {row} after {before}: a total changed"
                assert totals.index(before.total or 0) < totals.index(row.total), f"frame {number}: an earlier step"
            elif before and before.done is not None and row.total == before.total:
                assert row.done >= before.done, f"frame {number}: {row} after {before}: no other step, and it fell"
            last[row.subject] = row
    return every


@dataclass
class World:
    folder: Path
    proxy: FaultProxy
    project: Project
    index: str

    def machine(self, name: str) -> Machine:
        """A machine that has nothing yet; machines of one width share a repository."""
        registry = f"{self.proxy.host}/frames{name.partition('-')[0]}"
        return Machine(self.folder / name, registry, self.proxy.host, UV_INDEX_URL=self.index)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A registry that takes and gives 1.5 MB a second, and wheels of as much each."""
    folder = tmp_path_factory.mktemp("frames")
    wheels, index, base = Wheels(folder / "wheels"), SimpleIndex(), make_base(size=3_000_000)
    for number in range(4):
        wheels.add(f"package{number}", size=1_500_000)
    for path in (wheels.pip, *wheels.packages):
        index.add(as_wheel(path).name, path.name, path.read_bytes())
    project = Project(folder / "project", wheels, base)
    with run_registry(folder / "registry") as running, FaultProxy(running.host) as proxy, serving(index):
        base.put(running.host)
        proxy.rate = 1_500_000
        yield World(folder, proxy, project, index.url)


@pytest.mark.long
@pytest.mark.registry
@pytest.mark.parametrize("columns", WIDTHS)
def test_push_and_verify(world: World, columns: int) -> None:
    machine, folder = world.machine(f"{columns}-one"), world.project.folder
    shown = record([IMGTOOL, "push", "--locked"], columns=columns, env=machine.env, cwd=folder)
    assert shown.code == 0, shown.frames[-1]
    every = check_frames(shown, columns)
    packages = [row for rows in every for row in rows if row.subject == "packages cpu"]
    assert packages
    assert all(row.total and row.total >= 6e6 and row.about for row in packages), "from the first frame"
    wheels = [row for rows in every for row in rows if row.subject == "wheels" and row.done is not None]
    assert {row.total for row in wheels} <= {6e6}
    assert not [row for row in wheels if row.about]
    end = "\n".join(shown.unwrapped[-1])
    assert re.search(r"^\+ packages cpu  appended  \d layers  ", end, re.MULTILINE)
    assert "note: sent 6.0 MB, reused 3.0 MB" in " ".join(end.split())

    world.project.write("trainer/task.py", f"print({columns})\n")
    shown = record([IMGTOOL, "push", "--locked"], columns=columns, env=machine.env, cwd=folder)
    assert shown.code == 0, shown.frames[-1]
    check_frames(shown, columns)

    other = world.machine(f"{columns}-two")
    shown = record([IMGTOOL, "verify", "--locked"], columns=columns, env=other.env, cwd=folder)
    assert shown.code == 0, shown.frames[-1]
    check_frames(shown, columns)
    assert any(line.startswith("manifest  master  ok") for line in shown.frames[-1])
