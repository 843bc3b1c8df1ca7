"""`imgtool init` as a process: a program's proposal is resolved, what no wheel satisfies is left out and said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, make_base
from tests.resolve.lock.place import add, make_place
from tests.resolve.wheels.archives import source_archive
from tests.servers.registry_process import run_registry
from training_imgtool.base.errors import TemporaryError
from training_imgtool.model.load import load
from training_imgtool.resolve.wheels.interpreters import find_interpreter

pytestmark = pytest.mark.registry
CODE = "import tensorflow as tf\nimport scipy\nmodel = tf.keras.Model()\nmodel.fit([1])\n"
FILES = {"train.py": CODE, "requirements.txt": "tensorflow==2.15.1\nscipy==1.0.0\nnosuch\n"}


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_program_is_locked_unless_told_otherwise(tmp_path: Path) -> None:
    folder = write(tmp_path / "project", FILES)
    with make_place(tmp_path) as place, run_registry(tmp_path / "registry") as registry:
        make_base().put(registry.host)
        machine = Machine(tmp_path / "machine", f"{registry.host}/team", registry.host, UV_INDEX_URL=place.index.url)
        machine.run("init", "--no-lock", cwd=folder)
        assert not (folder / "image.lock").exists()
        out, err = machine.run("init", "--force", cwd=folder)
        assert "image.lock" in out
        assert "nosuch: no package of this name is on the index: it is left out" in err
        assert "scipy" in (folder / "image.lock").read_text()
        assert load(folder / "image.yaml").spec.python_packages == ("scipy",)
        machine.run("show", "--locked", cwd=folder)


def test_without_an_index_the_spec_is_there_and_the_exit_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path / "project", FILES)
    with run_registry(tmp_path / "registry") as registry:
        make_base().put(registry.host)
        machine = Machine(tmp_path / "machine", f"{registry.host}/team", registry.host)
        _, err = machine.run("init", cwd=folder, code=TemporaryError.exit_code)
        assert "correct it, then run imgtool lock" in err
        assert [path.name for path in (folder / "image.yaml", folder / "image.lock") if path.exists()] == ["image.yaml"]
        empty = write(tmp_path / "empty", {})
        machine.run("init", cwd=empty)
        assert not (empty / "image.lock").exists()


@pytest.mark.long
def test_an_archive_is_built_once_whatever_the_proposal_gives_up(tmp_path: Path) -> None:
    if find_interpreter("3.11", dict(os.environ)) is None:
        pytest.skip("Python 3.11 is not on this machine")
    folder = write(tmp_path / "project", {**FILES, "requirements.txt": "tensorflow==2.15.1\ndep\nother\n"})
    with make_place(tmp_path) as place, run_registry(tmp_path / "registry") as registry:
        place.index.add("dep", "dep-2.0.tar.gz", source_archive("dep", "2.0"))
        add(place.index, "other", "1.0", ("numpy<1",))
        make_base().put(registry.host)
        machine = Machine(tmp_path / "machine", f"{registry.host}/team", registry.host, UV_INDEX_URL=place.index.url)
        _, err = machine.run("init", cwd=folder)
        assert "other: " in err
        assert err.count("building dep-2.0.tar.gz") == 1
        assert "dep-2.0.tar.gz" in (folder / "image.lock").read_text()
