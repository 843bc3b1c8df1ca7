"""`init --try`: what is added to the proposal, by what the program says when it starts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from imgtool_project_reader.packages import Concessions
from tests.app.test_init import project
from training_imgtool.app.init import write_starter
from training_imgtool.app.init_try import Trial, is_help, mend, start_usefully, try_proposal
from training_imgtool.base.progress import Event
from training_imgtool.model.load import load

RUNS = Trial(ended="exit 0", lines=("usage: train.py [--epochs N]",), failed=False)
CODE = "import tensorflow as tf\nmodel = tf.keras.Model()\nmodel.fit([1])\n"


def fails(*lines: str) -> Trial:
    return Trial(ended="exit 1", lines=("Traceback (most recent call last):", *lines), failed=True)


@pytest.mark.parametrize(
    ("line", "added", "system"),
    [
        ("ModuleNotFoundError: No module named 'cv2'", "opencv-python-headless", None),
        ("ModuleNotFoundError: No module named 'google.cloud.storage'", "google-cloud-storage", None),
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", None, "libgl1"),
        ("OSError: libsndfile.so: cannot open shared object file: No such file", None, "libsndfile1"),
        ("TypeError: Descriptors cannot be created directly.", "protobuf<3.21", None),
        ("AttributeError: module 'numpy' has no attribute 'bool'.", "numpy<1.24", None),
    ],
)
def test_what_a_message_asks_for(line: str, added: str | None, system: str | None) -> None:
    mended = mend(fails(line), Concessions())
    assert mended is not None
    assert ([*mended.added], [*mended.system]) == ([added] if added else [], [system] if system else [])
    assert mend(fails(line), mended) is None  # it is there, and the message came again: that is the program's own


@pytest.mark.parametrize(
    "trial",
    [
        RUNS,
        replace(fails("ModuleNotFoundError: No module named 'cv2'"), failed=False),
        fails("ModuleNotFoundError: No module named 'of_nobody_we_know'"),
        fails("FileNotFoundError: data/train.csv"),
    ],
)
def test_what_is_the_programs_own(trial: Trial) -> None:
    assert mend(trial, Concessions()) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("  --epochs: how many", "    (default: '5')"), True),  # absl's, with exit 1
        (("train.py: error: the following arguments are required: --data",), True),
        (("    parse('--epochs')", "ModuleNotFoundError: No module named 'cv2'"), False),  # its first line is gone
        (("    parse('--epochs')", "tensorflow.python.framework.errors_impl.NotFoundError: x"), False),
    ],
)
def test_help_is_no_failure(lines: tuple[str, ...], expected: bool) -> None:
    assert is_help(lines) is expected


def test_what_was_given_up_is_not_added_again() -> None:
    trial = fails("ModuleNotFoundError: No module named 'tqdm'")
    assert mend(trial, Concessions(left_out={"tqdm": "it needs a compiler"})) is None
    assert trial.lacks == "tqdm"
    assert fails("ValueError: no data").lacks is None
    assert RUNS.lacks is None


def test_it_starts_again_until_the_program_is_heard(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": CODE})
    said = [
        fails("ModuleNotFoundError: No module named 'PIL'"),
        fails("ImportError: libGL.so.1: cannot open shared object file: No such file or directory"),
        RUNS,
    ]
    notes: list[Event] = []

    def take(event: Event) -> None:
        notes.append(event)

    propose = partial(write_starter, tmp_path, force=True)

    def lock(known: Concessions) -> Concessions:
        propose(concessions=known)
        return known

    assert try_proposal(lock, lambda: said.pop(0), take) == RUNS
    spec = load(tmp_path / "image.yaml").spec
    assert (spec.python_packages, spec.system_packages) == (("pillow",), ("libgl1",))
    assert "the program said: ModuleNotFoundError: No module named 'PIL'" in (tmp_path / "image.yaml").read_text()
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        ("UnrecognizedFlagError: Unknown command line flag 'help'", [(True, 0), (False, 0)]),
        ("KeyError: 'help'", [(True, 0)]),
        ("usage: train.py [-h] --data DATA", [(True, 0)]),
        ("", [(True, 0), (True, 120)]),
    ],
)
def test_a_program_that_does_not_know_help_or_says_nothing_starts_again(
    line: str, starts: list[tuple[bool, float]]
) -> None:
    seen: list[tuple[bool, float]] = []

    def start(*, with_help: bool, seconds: float = 0) -> Trial:
        seen.append((with_help, seconds))
        is_failed = with_help and bool(line)
        return Trial(ended="", lines=(line,) if line else (), failed=is_failed, has_ended=bool(line))

    start_usefully(start, with_help=True)
    assert seen == starts
