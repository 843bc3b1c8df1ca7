"""What a new lock tells beside the versions that changed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project
from tests.oci.registry.support import Events
from training_imgtool.base.errors import FieldError, InputError, UsageError
from training_imgtool.base.settings import from_environment
from training_imgtool.model.load import load
from training_imgtool.oci.machine import Machine
from training_imgtool.plan import current_lock, debian_stage
from training_imgtool.plan.current_lock import ensure_lock, upgrade_bases
from training_imgtool.plan.inputs import prepare
from training_imgtool.plan.project_files import SpecChoice
from training_imgtool.resolve.frameworks.tensorflow import notes_between
from training_imgtool.resolve.lock.carry_over import Renewal
from training_imgtool.resolve.lock.lockfile import dump_lock, read_lock
from training_imgtool.resolve.lock.parse import DamagedLockError
from training_imgtool.resolve.versions.matrix import load_matrix


def test_the_notes_of_an_upgrade_name_keras_3() -> None:
    matrix = load_matrix()
    assert any("Keras 3" in note for note in notes_between(matrix, "2.15.1", "2.16.2"))
    assert notes_between(matrix, "2.16.1", "2.16.2") == ()
    assert notes_between(matrix, "2.16.2", "2.15.1") == ()


def test_a_renewed_lock_is_written_if_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    path = project.folder / "image.lock"
    text, before = path.read_text(), read_lock(path)
    machine = from_environment(project.env)
    other = replace(before, variants=tuple(replace(one, base_digest=f"sha256:{'1' * 64}") for one in before.variants))
    for made in (before, other):
        monkeypatch.setattr(current_lock, "_make_lock", lambda *_, made=made, **__: made)
        events = Events()
        renewal = Renewal(everything=True)
        assert ensure_lock(load(project.folder / "image.yaml"), Machine.open(machine, events), renewal=renewal) == made
        (first,) = events.notes
        assert (path.read_text() == text) == (made == before)
        expected = f"{path} stays as it is: nothing newer fits" if made == before else f"renewed {path}"
        assert first == expected
    assert read_lock(path) == other


def test_only_who_asks_to_renew_hears_that_a_lock_is_current(tmp_path: Path) -> None:
    project = Project(tmp_path)
    spec, machine = load(project.folder / "image.yaml"), from_environment(project.env)
    for renewal, notes in (
        (None, []),
        (Renewal(), [f"{project.folder / 'image.lock'} is current; --upgrade takes newer versions and bases"]),
    ):
        events = Events()
        assert ensure_lock(spec, Machine.open(machine, events), renewal=renewal) == read_lock(
            project.folder / "image.lock"
        )
        assert events.notes == notes


def test_a_lock_that_somebody_edited_has_every_role(tmp_path: Path) -> None:
    project = Project(tmp_path)
    path = project.folder / "image.lock"
    made = read_lock(path)
    rows = tuple(replace(row, variant=replace(row.variant, roles=row.variant.roles[:1])) for row in made.variants)
    path.write_text(dump_lock(replace(made, variants=rows)))
    with pytest.raises(DamagedLockError, match="the lock has no variant for "):
        ensure_lock(load(project.folder / "image.yaml"), Machine.open(from_environment(project.env)))


def test_what_only_looks_writes_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    path = project.folder / "image.lock"
    made, machine = read_lock(path), from_environment(project.env)
    monkeypatch.setattr(current_lock, "_make_lock", lambda *_, **__: made)
    old = dump_lock(replace(made, inputs=re.sub(r"(tensorflow=)\w+", rf"\g<1>{'0' * 16}", made.inputs)))
    for text, state in ((old, "is out of date: tensorflow changed"), (None, "is missing")):
        path.unlink() if text is None else path.write_text(text)
        events = Events()
        assert ensure_lock(load(project.folder / "image.yaml"), Machine.open(machine, events), write=False) == made
        assert events.notes == [f"{path} {state}; `imgtool lock` writes it"]
        assert (path.read_text() if path.exists() else None) == text


@pytest.mark.parametrize(
    ("trainer", "says"),
    [
        ("source: my data, script: a.py", "4:19: trainer.source: my data: expected a folder of letters"),
        ("source: trainer, script: task.py, include: [my data]", "4:45: trainer.include: my data: expected a path"),
    ],
)
def test_a_path_that_no_dockerfile_names_has_its_place_in_the_spec(tmp_path: Path, trainer: str, says: str) -> None:
    project = Project(tmp_path)
    project.write("my data/a.py", "")
    path = project.spec(SPEC.replace("source: trainer, module: trainer.task", trainer))
    with pytest.raises(FieldError, match=re.escape(f"{path}:{says}")):
        prepare(load(path), Machine.open(from_environment(project.env), Events()), SpecChoice(locked=True))


def test_a_spec_without_a_registry_has_no_tags(tmp_path: Path) -> None:
    project = Project(tmp_path)
    inputs = prepare(
        load(project.folder / "image.yaml"),
        Machine.open(from_environment(project.env), Events()),
        SpecChoice(locked=True),
    )
    for ask in (lambda: inputs.images[0].registry_tag, lambda: inputs.repository):
        with pytest.raises(UsageError, match="no registry"):
            ask()


def test_bases_alone_are_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    path, spec = project.folder / "image.lock", load(project.folder / "image.yaml")
    before = read_lock(path)
    machine = Machine.open(from_environment(project.env))
    (old,) = {row.base_digest for row in before.variants}
    asked = []
    monkeypatch.setattr(debian_stage, "lock_debian", lambda *args, **_: asked.append(args))
    for new, state in ((old, "unchanged"), (f"sha256:{'1' * 64}", "moved")):
        monkeypatch.setattr(current_lock, "digest_of", lambda *_, new=new: new)
        after, moves = upgrade_bases(spec, machine)
        assert {(move.was, move.now, move.state) for move in moves} == {(old, new, state)}
        assert after == read_lock(path)
        kept = [replace(row, base_digest=old, debian=None) for row in after.variants]
        assert kept == [replace(row, debian=None) for row in before.variants]
    assert [args[1] for args in asked] == [f"sha256:{'1' * 64}"] * len(before.variants)
    path.write_text(dump_lock(replace(before, inputs=re.sub(r"(tensorflow=)\w+", rf"\g<1>{'0' * 16}", before.inputs))))
    with pytest.raises(InputError, match="is out of date: tensorflow changed, so it has no bases to upgrade"):
        upgrade_bases(spec, machine)
    path.unlink()
    with pytest.raises(InputError, match="is missing, so it has no bases to upgrade"):
        upgrade_bases(spec, machine)
