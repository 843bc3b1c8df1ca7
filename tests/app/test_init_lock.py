"""`init --lock`: what the proposal gives up, by what uv says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from imgtool_project_reader.frameworks import JAX
from imgtool_project_reader.packages import Concessions
from tests.app.test_init import project
from training_imgtool.app.init import write_starter
from training_imgtool.app.init_lock import concede, lock_proposal
from training_imgtool.base.errors import InputError, TemporaryError
from training_imgtool.base.progress import Event
from training_imgtool.base.settings import from_environment
from training_imgtool.model.load import SpecFile, load
from training_imgtool.oci.machine import Machine

COMPILER = "cpu (master): no wheel of editdistance fits (editdistance 0.5.2: it needs a compiler)"
FIGHT = (
    "Because gym==0.17.2 depends on pyglet>=1.4.0 and you require gym==0.17.2, you require pyglet>=1.4.0.",
    "And because you require pyglet==1.3.2, we can conclude that your requirements are unsatisfiable.",
)
UNLIMITED = ("Because tool was yanked and you require tool, we can conclude that your requirements are unsatisfiable.",)
PINNED = (
    "Because all versions of viewer depend on numpy>=1.24 and you require viewer, you require numpy>=1.24.",
    "And because you require numpy==1.22.0 and tool==1.0, we can conclude that your requirements are unsatisfiable.",
)
OF_TENSORFLOW = (
    "Because keras==2.2.0 depends on keras-preprocessing==1.0.1 and tensorflow==1.15.5 depends on",
    "keras-preprocessing>=1.0.5, keras==2.2.0 and tensorflow==1.15.5 are incompatible.",
    "And because you require tensorflow==1.15.5 and keras==2.2.0, your requirements are unsatisfiable.",
)
BARE = (
    "Because all versions of viewer depend on numpy<1 and all versions of tensorflow-cpu depend on numpy>=1.23.5,<2,",
    "we can conclude that all versions of viewer and all versions of tensorflow-cpu are incompatible.",
    "And because you require tensorflow-cpu==2.15.1 and viewer, your requirements are unsatisfiable.",
)
CODE = "import tensorflow as tf\nmodel = tf.keras.Model()\nmodel.fit([1])\n"


@pytest.mark.parametrize(
    ("error", "name", "reason"),
    [
        (InputError(COMPILER), "editdistance", "editdistance 0.5.2: it needs a compiler"),
        (
            InputError("requirements: requirements.txt:12: numpy==1.26.4 fights JAX 0.12.0.1, which needs numpy>=2.2"),
            "numpy",
            "it fights JAX 0.12.0.1, which needs numpy>=2.2",
        ),
        (InputError("no wheel of Bcolz fits"), "bcolz", "no wheel of Bcolz fits"),
        (InputError("the requirements", details=UNLIMITED), "tool", "it does not fit what other packages require"),
        (InputError("the requirements", details=FIGHT), "pyglet", "it does not fit what other packages require"),
        (InputError("the requirements", details=BARE), "viewer", "it does not fit what other packages require"),
        (InputError("the requirements", details=PINNED), "numpy", "it does not fit what other packages require"),
        (InputError("the requirements", details=OF_TENSORFLOW), "keras", "it does not fit what other packages require"),
    ],
)
def test_the_limit_that_the_resolver_names(error: InputError, name: str, reason: str) -> None:
    assert concede(error, Concessions()) == Concessions({name: reason})


def test_another_framework_is_a_package_like_others() -> None:
    details = (
        "Because tensorflow-cpu>=2.6.0 depends on numpy<1.20 and jax==0.4.18 depends on numpy>=1.22, and because you",
        "require jax[cpu]==0.4.18 and tensorflow-cpu>=2.6.0,<2.7.dev0, your requirements are unsatisfiable.",
    )
    found = concede(InputError("the requirements", details=details), Concessions(), framework=JAX)
    assert found is not None
    assert [*found.loosened] == ["tensorflow-cpu"]


def test_a_package_that_the_index_does_not_have() -> None:
    details = (
        "Because nosuch was not found in the package registry and you require nosuch,",
        "we can conclude that your requirements are unsatisfiable.",
    )
    error = InputError("the requirements", details=details)
    once = concede(error, Concessions())
    assert once == Concessions({}, {"nosuch": "no package of this name is on the index"})
    assert concede(error, once) == replace(once, loosened={"nosuch": "it does not fit what other packages require"})


def test_a_debian_package_that_the_base_does_not_have() -> None:
    said = "system_packages: apt: E: Unable to locate package libfoo1"
    once = concede(InputError(said), Concessions())
    assert once == Concessions(absent={"libfoo1": "the base's archives have no such package"})
    assert concede(InputError(said), once) is None


def test_a_release_that_is_for_another_python() -> None:
    error = InputError("the locked packages do not fit together: dataclasses 0.8 requires Python >=3.6, <3.7")
    once = concede(error, Concessions())
    assert once == Concessions(added={"dataclasses<0.8": "newer ones are for another Python"})
    assert concede(error, once) is None


def test_a_package_without_any_wheel_is_left_out_last() -> None:
    error = InputError("no wheel of bcolz fits")
    once = concede(error, Concessions())
    assert once is not None
    twice = concede(error, once)
    assert twice == Concessions({"bcolz": "no wheel of bcolz fits"}, {"bcolz": "no wheel of bcolz fits"})
    assert concede(error, twice) is None


TFX = (
    "Because tfx==1.16.0 depends on tensorflow-data-validation>=1.16 and tensorflow-data-validation>=1.16 depends on",
    "pyfarmhash>=0.2, tfx==1.16.0 depends on pyfarmhash>=0.2. And because you require tfx==1.16.0 and click and jinja2",
    "and docker, your requirements are unsatisfiable.",
)


@pytest.mark.parametrize(
    ("details", "parent"),
    [(TFX, "tfx"), (("Because you require tfx and click and docker, they are unsatisfiable.",), "docker")],
)
def test_one_cause_drops_its_package_and_one_that_needs_it(details: tuple[str, ...], parent: str) -> None:
    error = InputError("no wheel of pyfarmhash fits (pyfarmhash 0.3.2: it needs a compiler)", details=details)
    concessions: Concessions | None = Concessions()
    for _ in range(9):
        last, concessions = concessions, concede(error, concessions or Concessions(), spared=frozenset())
        if concessions is None:
            break
    assert last is not None
    assert [*last.left_out] == [parent, "pyfarmhash"] or [*last.left_out] == ["pyfarmhash", parent]


def test_what_the_program_imports_is_left_out_last() -> None:
    error, loose = InputError("the requirements", details=PINNED), dict.fromkeys(("numpy", "viewer", "tool"), "")
    found = concede(error, Concessions(loose), wanted=frozenset({"tool", "numpy"}))
    assert found is not None
    assert [*found.left_out] == ["viewer"]


@pytest.mark.parametrize("text", ["image.yaml:3:1: python: no such", "you require tensorflow==2.15.1"])
def test_what_no_concession_mends(text: str) -> None:
    assert concede(InputError(text), Concessions()) is None


def test_the_proposal_is_written_with_what_it_gave_up(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": CODE, "requirements.txt": "editdistance==0.5.2\nfastdtw==1.2.1\nscipy==1.9.3\n"})
    refusals = [COMPILER, "no wheel of fastdtw fits", "no wheel of fastdtw fits"]
    seen: list[tuple[str, ...]] = []

    def lock(spec_file: SpecFile, _machine: object) -> None:
        seen.append(spec_file.spec.python_packages)
        if len(seen) <= len(refusals):
            raise InputError(refusals[len(seen) - 1])

    notes: list[Event] = []

    def take(event: Event) -> None:
        notes.append(event)

    propose = partial(write_starter, tmp_path, force=True)
    conceded = lock_proposal(
        tmp_path,
        lambda given: propose(concessions=given),
        Machine.open(from_environment({"HOME": str(tmp_path)}), take),
        lock=lock,
    )
    assert set(conceded.left_out) == {"fastdtw"}
    assert seen[0] == ()  # the file itself
    assert load(tmp_path / "image.yaml").spec.python_packages == ("editdistance", "scipy==1.9.3")
    text = (tmp_path / "image.yaml").read_text()
    assert (
        "# left out a limit: editdistance==0.5.2 (requirements.txt:1): editdistance 0.5.2: it needs a compiler" in text
    )
    assert "fastdtw (requirements.txt:2) left out" in text
    assert len(notes) == 3


def test_changes_that_do_not_help_are_taken_back(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": CODE, "requirements.txt": "editdistance==0.5.2\nscipy==1.9.3\n"})

    def lock(*_: object) -> None:
        raise InputError(COMPILER)

    propose = partial(write_starter, tmp_path, force=True)
    propose()
    before = (tmp_path / "image.yaml").read_text()
    with pytest.raises(InputError, match="editdistance"):
        lock_proposal(
            tmp_path,
            lambda given: propose(concessions=given),
            Machine.open(from_environment({"HOME": str(tmp_path)}), lambda _: None),
            lock=lock,
        )
    assert (tmp_path / "image.yaml").read_text() == before


def test_of_all_that_a_machine_had_what_the_program_does_not_import_goes_at_once(tmp_path: Path) -> None:
    frozen = "".join(f"package{number}==1.0\n" for number in range(30))
    project(
        tmp_path,
        {"train.py": f"import tqdm\n{CODE}", "environment.yml": "", "requirements.txt": f"{frozen}tqdm==4.0\n"},
    )
    refusals = ["no wheel of package3 fits", "no wheel of tqdm fits"]

    def lock(*_: object) -> None:
        if refusals:
            raise InputError(refusals.pop(0))

    propose = partial(write_starter, tmp_path, force=True)
    machine = Machine.open(from_environment({"HOME": str(tmp_path)}))
    known = Concessions(loosened={"package0": "so that the spec has lines"})
    found = lock_proposal(tmp_path, lambda given: propose(concessions=given), machine, lock=lock, concessions=known)
    assert found.left_out == {"package3": "no wheel of package3 fits; the program imports none"}
    assert found.loosened == {**known.loosened, "tqdm": "no wheel of tqdm fits"}


def test_an_index_that_does_not_answer_ends_it(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": CODE})

    def lock(*_: object) -> None:
        raise TemporaryError("the package index does not answer")

    propose = partial(write_starter, tmp_path, force=True)
    with pytest.raises(TemporaryError):
        lock_proposal(
            tmp_path,
            lambda given: propose(concessions=given),
            Machine.open(from_environment({"HOME": str(tmp_path)})),
            lock=lock,
        )
    assert (tmp_path / "image.yaml").is_file()
