"""`scripts/mutants` finds decisions that no test watches, and only those."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutation.changes import compiles, draw_changes, find_changes

CHECKOUT = Path(__file__).resolve().parent.parent
SCRIPT = CHECKOUT / "scripts/mutants"
# Decisions as they once went unwatched: what a key holds, who made a stage, which version of a registry's software was
# tried, and which records stay on the machine.
DECISIONS = """\
def key(parent, arguments):
    return ["key", parent, *arguments]

def maker(lines):
    return "direct" if all(line.known for line in lines) else "engine"

def remembered(answer, host, software):
    return answer["host"] == host and answer["software"] == software

def keep(name, borrowed, kept):
    if name not in borrowed:
        kept.append(name)

KINDS = {"file": 1}
FILE = KINDS["file"]
"""
CALLS = {
    "key": 'key("p", ["A=1"])',
    "maker": 'maker([type("Line", (), {"known": known}) for known in (True, False)])',
    "remembered": 'remembered({"host": "h", "software": "1"}, "h", "2")',
}
NO_IMPORT = "{}"  # no entry, so neither tests nor their conftest can be imported
PLANTED = {
    "key dropped element": '[("key"), parent]',
    "maker always": "True",
    "remembered dropped operand": '((answer["host"] == host))',
    "keep always": "True",
}


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("x = a == b", {"x = a != b"}),
        ("x = (a)not  in(b)", {"x = (a)in(b)"}),
        ("x = a < 1", {"x = a <= 1", "x = a < (2)"}),
        ("x = a and b", {"x = (a or b)", "x = (a)", "x = (b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = True", {"x = False"}),
        ("x = 30", set()),
        ("x = a[0]", {"x = a[(1)]"}),
        ("def f():\n    return a", {"def f():\n    return None"}),
        ("raise a(True)", {"pass"}),
        ("if a:\n    b()", {"if True:\n    b()", "if False:\n    b()"}),
        ("while a:\n    if b:\n        break", {"while a:\n    if False:\n        break"}),
        ("x = [y for y in z if y]", {"x = [y for y in z if True]"}),
        ("f(1, a=2, b=3)", {"f((1), b=3)", "f((1), a=2)"}),
        ("x = (*a, b)", {"x = (*a,)", "x = (b,)"}),
        ("x = {1: 2, **a}", {"x = {(1): (2)}", "x = {**a}"}),
        ("@dataclass(frozen=True)\nclass A:\n    x: Literal[True]", set()),
        ("x = f'{a == b}'", set()),
    ],
)
def test_single_decisions_are_changed(source: str, changed: set[str]) -> None:
    assert {change.apply(source.encode()).decode() for change in find_changes(source.encode())} == changed
    assert all(compiles(text.encode()) for text in changed)


def _project(folder: Path) -> None:
    """A checkout of two modules that decide alike, of which the tests watch one."""
    package, tests = folder / "builder/training_imgtool", folder / "tests/direct"
    (package / "direct").mkdir(parents=True)
    tests.mkdir(parents=True)
    for place in (package, package / "direct", folder / "tests", tests):
        (place / "__init__.py").touch()
    (tests / "conftest.py").write_text("import training_imgtool.direct.watched\n")
    for name in ("watched", "unwatched"):
        (package / f"direct/{name}.py").write_text(DECISIONS)
        (tests / f"test_{name}.py").write_text(
            "import subprocess, sys\nimport pytest\n"
            f"from training_imgtool.direct.{name} import key, maker, remembered\n"
            "@pytest.fixture(scope='module')\n"
            f"def made():\n    return {CALLS['key']}\n"
            "def test_a_key_is_made(made):\n    assert made\n"
            f"def test_a_stage_has_a_maker():\n    assert {CALLS['maker']} in {{'direct', 'engine'}}\n"
            f"def test_an_answer_is_looked_at():\n    assert {CALLS['remembered']} in {{True, False}}\n"
            "def kept():\n"
            f"    program = 'from training_imgtool.direct.{name} import keep; k = []; keep(1, [1], k); print(k)'\n"
            "    return subprocess.run([sys.executable, '-c', program], env={}, capture_output=True).stdout\n"
            "def test_something_is_printed():\n    assert kept()\n"
        )
    with (tests / "test_watched.py").open("a") as stream:
        stream.write(
            "def test_a_key_has_its_arguments(made):\n    assert made == ['key', 'p', 'A=1']\n"
            f"def test_an_engine_made_it():\n    assert {CALLS['maker']} == 'engine'\n"
            f"def test_another_version_is_tried():\n    assert not {CALLS['remembered']}\n"
            "def test_a_borrowed_record_is_not_kept():\n    assert kept() == b'[]\\n'\n"
        )
    subprocess.run(["git", "init", "-q", folder], check=True)


def _mutants(*arguments: str | Path) -> str:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_seed_draws_the_same_decisions_when_others_come_and_go() -> None:
    def drawn(source: str, seed: int) -> list[tuple[str, str]]:
        text = source.encode()
        changes = draw_changes({"a.py": text}, seed)
        return [(change.kind, text[change.start : change.end].decode() + change.text) for _, change in changes]

    before = drawn(DECISIONS, 1)
    after = drawn("def more(x):\n    return x[5] < 7\n\n" + DECISIONS, 1)
    assert [one for one in after if one in before] == before
    assert len(after) > len(before)
    assert drawn(DECISIONS, 2) != before
    assert sorted(drawn(DECISIONS, 2)) == sorted(before)


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ("FAILED tests/b.py::test_b - assert False\n", ("tests/b.py::test_b", False)),
        ("ERROR: not found: /f/tests/b.py::test_b\n", ("tests/b.py::test_b", False)),
        ("ImportError while loading conftest '/f/tests/conftest.py'.\n", ("tests/a.py::test_a", False)),
        ("2 passed\npytest.PytestUnraisableExceptionWarning: Exception ignored in: x\n", ("tests/a.py::test_a", True)),
        ("INTERNALERROR> x\n", None),
    ],
)
def test_what_failed_is_read_from_what_pytest_says(
    monkeypatch: pytest.MonkeyPatch, output: str, failed: tuple[str, bool] | None
) -> None:
    monkeypatch.syspath_prepend(CHECKOUT / "scripts")
    trial = importlib.import_module("mutation.trial")
    found = trial.read_failure(output, [trial.Test(f"tests/{one}.py::test_{one}", 0.1, 1) for one in "ab"], Path("/f"))
    assert (found and (found.test.name, found.of_all)) == failed


def test_planted_changes_survive_only_where_no_test_watches(tmp_path: Path) -> None:
    """Through fixtures that several tests share and programs that a test starts with an environment of its own."""
    _project(tmp_path / "project")
    options = ("--checkout", tmp_path / "project", "--state", tmp_path / "state", "--jobs", "2")
    assert "12 tests reach 8 of 8 functions" in _mutants(*options, "--record")
    only = "|".join(re.escape(f": {text}") + "$" for text in (*PLANTED.values(), NO_IMPORT))
    printed = _mutants(*options, "--room", "direct", "--count", "100", "--only", only)
    alive = {
        (module, f"{function} {kind}")
        for module, function, kind in re.findall(r"direct/(\w+)\.py:\d+ in (\w+): ([^;]+);", printed)
    }
    for planted in PLANTED:
        assert ("unwatched", planted) in alive
        assert ("watched", planted) not in alive
    assert "direct: 100 of " in printed
    assert len(re.findall(r"^killed +direct/watched\.py:", printed, re.MULTILINE)) > len(PLANTED)
    assert not list((tmp_path / "project").rglob("_noted.py"))


@pytest.mark.long
def test_a_sample_of_changes_is_noticed(tmp_path: Path) -> None:
    """By the tests of the rooms alone; `scripts/mutants --record` without a name takes all tests."""
    rooms = ("pipeline", "registry", "direct", "verify", "lock", "attest", "jobs")
    options = ("--state", tmp_path / "state", "--jobs", "2")
    _mutants(*options, "--record", *(f"tests/{room}" for room in rooms))
    _mutants(*options, "--seed", "20261122", "--count", "12", "--at-most", "40")
