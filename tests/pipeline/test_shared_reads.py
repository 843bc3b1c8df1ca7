"""What the variants of a spec share in one run: each file is read once; the inputs are those of a run of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.project import SPEC, Project
from training_imgtool.core.errors import FieldListError
from training_imgtool.core.progress import silent
from training_imgtool.core.settings import Settings, from_environment
from training_imgtool.pipeline import current_lock
from training_imgtool.pipeline import inputs as building
from training_imgtool.pipeline.inputs import Inputs, prepare
from training_imgtool.pipeline.shared_reads import SharedReads, open_spec
from training_imgtool.spec import load as spec_load

USERS = ("1000", "1001", "1002", "1003")
Counted = Callable[[Any, str], None]


@pytest.fixture
def calls() -> Counter[str]:
    return Counter()


@pytest.fixture
def count(calls: Counter[str], monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Counts the calls of a function of a module."""

    def watch(module: Any, name: str) -> None:
        function = getattr(module, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, counting)

    return watch


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def settings_of(project: Project) -> Settings:
    return from_environment({**project.env, "IMGTOOL_REGISTRY": "registry.example.com/team"})


def keys_of(inputs: Inputs) -> dict[str, str]:
    return {image.role: image.key for image in inputs.images}


def test_variants_read_each_file_once(project: Project, calls: Counter[str], count: Counted) -> None:
    path = project.spec(SPEC)
    settings = settings_of(project)
    alone = {user: keys_of(prepare(open_spec(path, {"user": user}), settings, silent)) for user in USERS}
    count(spec_load, "read_bytes")
    count(current_lock, "read_lock")
    count(building, "read_code")
    shared = SharedReads(settings.cache)
    together = {
        user: keys_of(prepare(shared.open_spec(path, {"user": user}), settings, silent, shared=shared))
        for user in USERS
    }
    assert together == alone
    assert len({key for keys in together.values() for key in keys.values()}) == len(USERS)
    assert (calls["read_bytes"], calls["read_lock"], calls["read_code"]) == (1, 1, 1)


def test_variants_that_read_other_files_share_none_of_them(project: Project) -> None:
    path = project.spec(SPEC)
    project.write("other/__init__.py", "")
    project.write("other/task.py", "print('other')\n")
    settings, shared = settings_of(project), SharedReads(project.folder / "cache")
    values = [{"trainer.source": "other", "trainer.module": "other.task"}, {}, {"trainer.source": "trainer"}]
    keys = [keys_of(prepare(shared.open_spec(path, one), settings, silent, shared=shared)) for one in values]
    assert keys[0] != keys[1] == keys[2]


def test_values_may_be_what_the_file_lacks(project: Project) -> None:
    path = project.spec(SPEC.replace('tensorflow: "2.15.1"\n', ""), lock=False)
    shared = SharedReads(project.folder / "cache")
    with pytest.raises(FieldListError, match="tensorflow"):
        shared.open_spec(path, {})
    spec_file = shared.open_spec(path, {"tensorflow": "2.15.1"})
    assert (spec_file.spec.tensorflow, spec_file.plain) == ("2.15.1", None)
