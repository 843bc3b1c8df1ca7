"""One changed decision, and the tests that should notice it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutation.changes import Change
from mutation.reach import Reach, Test
from mutation.trees import Tree

QUIET = ("-q", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=line", "-rfE")
_LIMITS = (1.5, 15.0, 60.0)  # seconds of tests, as recorded: for each change, and more for one that survives them
_FEW = 10
_NO_CONFTEST = "ImportError while loading conftest"
_LEFT_OPEN = "pytest.PytestUnraisableExceptionWarning: "  # a file, say, that is closed after the last test
_QUICK = 1.0
_seen_to_pass: set[str] = set()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one module."""

    module: str
    change: Change
    function: str

    @property
    def room(self) -> str:
        """The room that it lies in."""
        return self.module.partition("/")[0].removesuffix(".py")

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{self.module}:{self.change.line}"

    @property
    def name(self) -> str:
        """What no other mutant is called."""
        return f"{self.place} {self.change.kind}, {self.change.start}-{self.change.end}: {self.change.text}"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant: `killed`, `timeout`, `survived` or `unreached`; by which test, and how many ran."""

    name: str
    outcome: str
    test: str
    tests: int
    reaching: int
    diff: str

    @property
    def alive(self) -> bool:
        """Whether nothing noticed it."""
        return self.outcome in {"survived", "unreached"}

    @property
    def extent(self) -> str:
        """How many tests ran."""
        return f"{self.tests} of {self.reaching} tests" if self.reaching else "no test reaches it"


@dataclass(frozen=True, slots=True)
class _Failure:
    """What failed: a test, or with `of_all` the run of them all, of which `test` is the first."""

    outcome: str
    test: Test
    of_all: bool = False


def try_one(tree: Tree, mutant: Mutant, known: Reach) -> Result:
    """Runs the tests of one mutant's function until one fails on it."""
    source = (tree.package / mutant.module).read_bytes()
    diff = _format_diff(source, mutant.change)
    tests = _select(mutant, known)
    ran = 0
    for batch in _batches(tests):
        left = batch
        while left:
            tree.write(mutant.module, mutant.change.apply(source))
            try:
                failure = _first_failure(tree, left)
            finally:
                tree.write(mutant.module, source)
            if failure is None:
                break
            ran += 1 + left.index(failure.test)
            if _first_failure(tree, left) is None if failure.of_all else _passes(tree, failure.test):
                return Result(mutant.name, failure.outcome, failure.test.name, ran, len(tests), diff)
            # It fails, or they take too long, without the change too: that decides nothing.
            left = [] if failure.of_all else left[1 + left.index(failure.test) :]
        ran += len(left)
    return Result(mutant.name, "survived" if ran else "unreached", "", ran, len(tests), diff)


def _passes(tree: Tree, test: Test) -> bool:
    """Whether a test passes without a change; a quick one, which waits for nothing, is asked once."""
    if test.name in _seen_to_pass:
        return True
    passes = _first_failure(tree, [test]) is None
    if passes and test.seconds < _QUICK:
        _seen_to_pass.add(test.name)
    return passes


def _select(mutant: Mutant, known: Reach) -> list[Test]:
    """Returns the tests that may notice a mutant, the narrow and quick ones first.

    What is remembered for a whole process is reached by the first test that asks: the tests named like the module are
    among them, those of the room that are not in the record, and where few reach a function, all tests of the room.
    """
    named = f"/test_{mutant.module.rpartition('/')[2]}"
    here = f"tests/{mutant.room}/"
    found = known.of(mutant.module, mutant.function)
    found += [test for test in known.tests if test.file.endswith(named)]
    found += [test for test in known.tests if test.name.startswith(here) and (not test.breadth or len(found) < _FEW)]
    return sorted(dict.fromkeys(found), key=lambda test: test.breadth + 100 * test.seconds)


def _batches(tests: list[Test]) -> Iterator[list[Test]]:
    left = list(tests)
    for limit in _LIMITS:
        batch: list[Test] = []
        while left and (not batch or sum(test.seconds for test in batch) + left[0].seconds <= limit):
            batch.append(left.pop(0))
        yield batch


def _first_failure(tree: Tree, tests: list[Test]) -> _Failure | None:
    """Runs tests in their order until one fails; a module or a conftest that cannot be imported fails the first."""
    names = tree.folder / ".tests"
    names.write_text("".join(f"{test.name}\n" for test in tests))
    ended = tree.pytest((*QUIET, "-x", f"@{names.name}"), 100 + 5 * sum(test.seconds for test in tests))
    if ended.status == 0:
        return None
    if ended.status is None:
        return _Failure("timeout", tests[0], of_all=True)
    failure = read_failure(ended.output, tests, tree.folder)
    if failure is None:
        raise RuntimeError(f"pytest ended with {ended.status} and names no test:\n{ended.output}")
    return failure


def read_failure(output: str, tests: list[Test], folder: Path) -> _Failure | None:
    """Finds what failed in the output of pytest; None where it names nothing."""
    # Of a test, of a file, or of a test whose parameters come from the module and are others now.
    begins = ("FAILED ", "ERROR ", f"ERROR: not found: {folder}/")
    lines = [line.removeprefix(begin) for line in output.splitlines() for begin in begins if line.startswith(begin)]
    failed = [test for test in tests for line in lines if _is_of(line, test)]
    if failed or _NO_CONFTEST in output:
        return _Failure("killed", (failed or tests)[0])
    return _Failure("killed", tests[0], of_all=True) if _LEFT_OPEN in output else None


def _is_of(line: str, test: Test) -> bool:
    named = {test.name, test.file, test.name.partition("[")[0]}
    return line.startswith((f"{test.name} - ", f"{test.file} - ")) or line in named


def existing(tree: Tree, known: Reach) -> Reach:
    """Leaves out the tests of a record that are no more; adds those that came later, which `_select` knows by name."""
    output = tree.pytest((*QUIET, "--collect-only", "-m", "not long"), 600).output
    listed = {line: None for line in output.splitlines() if line.startswith("tests/") and "::" in line}
    tests = [test for test in known.tests if test.name in listed]
    recorded = {test.name for test in tests}
    tests += [Test(name, _QUICK, 0) for name in listed if name not in recorded]
    places = {test: place for place, test in enumerate(tests)}
    return Reach(
        tests,
        {
            function: [places[known.tests[number]] for number in numbers if known.tests[number] in places]
            for function, numbers in known.functions.items()
        },
    )


def _format_diff(source: bytes, change: Change) -> str:
    """Formats the lines that a change replaces, and those that it writes."""
    before, after = (text.decode().splitlines() for text in (source, change.apply(source)))
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return "\n".join(f"    {line}" for line in lines if not line.startswith(("---", "+++", "@@")))
