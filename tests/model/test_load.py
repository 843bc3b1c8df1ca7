from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.other_user import as_nobody, open_folder
from tests.spec_samples import BAD, GOOD, HEAD, Bad, make_folder
from training_imgtool.base.errors import FieldError, FieldListError, InputError, UsageError
from training_imgtool.model.load import SpecFile, find, load
from training_imgtool.model.spec import Accelerator, ImageSpec, Role


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "spec")


def written(folder: Path, text: str) -> Path:
    path = folder / "image.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def errors_of(path: Path) -> tuple[FieldError, ...]:
    with pytest.raises(FieldListError) as caught:
        load(path)
    assert caught.value.exit_code == 3
    return caught.value.errors


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_right_specs_load(folder: Path, text: str) -> None:
    assert isinstance(load(written(folder, text)).spec, ImageSpec)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.label)
def test_each_fault_is_one_error_with_its_place(folder: Path, bad: Bad) -> None:
    path = written(folder, bad.text)
    (error,) = errors_of(path)
    assert error.field == bad.field
    assert error.location == f"{path}:{bad.at}"
    assert bad.message in error.message
    assert bad.hint in (error.hint or "")
    assert str(error).startswith(f"{path}:{bad.at}: {bad.field}: ")


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.label)
def test_no_message_shows_a_secret_or_breaks_a_line(folder: Path, bad: Bad) -> None:
    for error in errors_of(written(folder, bad.text)):
        said = f"{error} {error.hint}"
        assert "hunter2" not in said.lower()
        assert said.isprintable()


def test_all_errors_of_a_file_come_together_in_its_order(folder: Path) -> None:
    text = "roles:\n  wokrer: {}\n  master: {count: x, gpus: {type: T4, count: 0}}\ntensorflow: 2\nname: A\nzzz: 1\n"
    found = errors_of(written(folder, text))
    assert [error.field for error in found] == [
        "roles.wokrer", "roles.master.count", "roles.master.gpus.count", "tensorflow", "name", "zzz",
    ]  # fmt: skip
    with pytest.raises(FieldListError, match=r"(?s)wokrer.*did you mean worker.*zzz"):
        load(folder / "image.yaml")


def test_a_wrong_trainer_folder_gives_no_second_error_for_the_module(folder: Path) -> None:
    assert [error.field for error in errors_of(written(folder, HEAD + "trainer: {source: nope}\n"))] == [
        "trainer.source"
    ]


def test_the_default_trainer_must_be_there_too(tmp_path: Path) -> None:
    (error,) = errors_of(written(tmp_path, HEAD))
    assert (error.field, error.location) == ("trainer.source", f"{tmp_path}/image.yaml:1:1")
    assert error.message == "there is no 'trainer' next to the spec"


# Y5 and Y6 of the fault list: text that YAML readers make numbers, booleans, dates or infinities of.
AS_TYPED = (
    "2.10", "3.10", "on", "off", "yes", "no", "y", "true", "0755", "0o17", "22:22", "2024-01-02", "1_000", "12e5678",
    "1234567", ".inf", "-.INF", ".nan", "1e3", "0x1F", "=", "1.", "+1", "007", "2024-01-02T03:04:05Z",
)  # fmt: skip


@pytest.mark.parametrize("text", AS_TYPED)
def test_text_arrives_as_typed(folder: Path, text: str) -> None:
    spec = load(written(folder, HEAD + f"env: {{A: {text}}}\nargs:\n  - {text}\njob: {{region: {text}}}\n")).spec
    assert (spec.env["A"], spec.args, spec.job.region) == (text, (text,), text)


@pytest.mark.parametrize("word", ["~", "null", "Null", "NULL", ""])
def test_nothing_means_the_default_and_quoted_nothing_is_text(folder: Path, word: str) -> None:
    spec = load(written(folder, HEAD + f'base: {word}\nenv: {{A: "{word}"}}\n')).spec
    assert spec.base is None
    assert spec.env["A"] == word


def test_defaults_of_short_forms(folder: Path) -> None:
    spec = load(written(folder, GOOD["roles without a value"])).spec
    assert list(spec.roles) == [Role.MASTER, Role.WORKER, Role.PS]
    assert [spec.roles[role].count for role in spec.roles] == [1, 1, 1]
    assert spec.accelerator is Accelerator.CPU


def test_values_of_the_whole_spec(folder: Path) -> None:
    spec = load(written(folder, GOOD["everything"])).spec
    worker = spec.roles[Role.WORKER]
    assert worker.gpus is not None
    assert (worker.count, worker.gpus.type, worker.gpus.count) == (9, "NVIDIA_TESLA_V100", 2)
    assert spec.python == "3.10"
    assert spec.roles[Role.PS].args == ()
    assert spec.roles[Role.MASTER].args is None
    assert spec.job.web_access is False
    assert spec.job.hyperparameters is not None
    assert spec.job.hyperparameters.params[0].min == "0.1"
    with pytest.raises(TypeError):
        spec.env["B"] = "c"  # type: ignore[index]


def test_paths_are_kept_in_their_plain_form(folder: Path) -> None:
    spec = load(written(folder, GOOD["paths"])).spec
    assert (spec.requirements, spec.trainer.source) == ("requirements.txt", "trainer")


def test_hash_is_of_the_bytes_that_were_read(folder: Path) -> None:
    path = written(folder, GOOD["CRLF"])
    assert load(path).text_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def loaded(folder: Path) -> SpecFile:
    return load(written(folder, GOOD["everything"]))


@pytest.mark.parametrize(
    ("field", "at"),
    [
        ("roles.worker.gpus.count", "20:76"),
        ("roles.worker.gpus", "20:37"),  # a mapping's place is its key's
        ("args[0]", "11:8"),
        ("args[7]", "11:1"),
        ("roles.worker.disk.size_gb", "20:3"),
        ("job.hyperparameters.params[0].type", "31:65"),
        ("nothing.like.this", "1:1"),
    ],
)
def test_locate_falls_back_to_the_nearest_parent(loaded: SpecFile, field: str, at: str) -> None:
    assert loaded.locate(field) == f"{loaded.path}:{at}"


def test_located_adds_a_place_once(loaded: SpecFile) -> None:
    error = loaded.located(FieldError("too many", field="roles.worker.count", hint="fewer"))
    assert str(error) == f"{loaded.path}:20:87: roles.worker.count: too many"
    assert error.hint == "fewer"
    assert loaded.located(error) is error
    assert loaded.located(FieldError("whole", field="")).location is None


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").touch()
    (folder / "out.txt").symlink_to("../outside.txt")
    (folder / "in.txt").symlink_to("requirements.txt")
    (folder / "linked").symlink_to("trainer")
    (folder / "loop").symlink_to("loop")
    assert load(written(folder, HEAD + "requirements: in.txt\n")).spec.requirements == "in.txt"
    (error,) = errors_of(written(folder, HEAD + "requirements: out.txt\n"))
    assert "'out.txt' is a symbolic link that leads out of the spec's folder" in error.message
    (error,) = errors_of(written(folder, HEAD + "trainer: {source: linked, module: other.task}\n"))
    assert error.message == "expected a folder or a Python file, found a symbolic link: 'linked'"
    (error,) = errors_of(written(folder, HEAD + "requirements: loop\n"))
    assert error.message == "'loop': too many levels of symbolic links"


def test_missing_folder_fifo_and_directory(folder: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load(folder / "nope.yaml")
    with pytest.raises(InputError, match="expected a file, found a folder"):
        load(folder / "trainer")
    os.mkfifo(folder / "image.yaml")
    with pytest.raises(InputError, match="expected a file, found none"):
        load(folder / "image.yaml")


def test_find_prefers_the_folder_then_the_only_image(tmp_path: Path) -> None:
    first = tmp_path / "images/a/image.yaml"
    first.parent.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"no image.yaml and no images/\*/image.yaml"):
        find(None, tmp_path)
    first.touch()
    assert find(None, tmp_path) == first
    assert find(Path("images/a"), tmp_path) == first
    assert find(Path("images/a/image.yaml"), tmp_path) == first
    (first.parent / "trainer/parts").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"no image.yaml") as caught:
        find(None, first.parent / "trainer/parts")
    assert caught.value.hint == "name the spec: ../.."
    (first.parent / "trainer/task.py").touch()
    with pytest.raises(InputError, match=r"^trainer/task.py is a program, not a spec"):
        find(Path("trainer/task.py"), first.parent)
    assert find(tmp_path, Path("/")) == first
    (tmp_path / "images/b").mkdir()
    (tmp_path / "images/b/image.yaml").touch()
    with pytest.raises(UsageError, match="has 2 specs") as caught:
        find(None, tmp_path)
    assert caught.value.hint == "name one of images/a, images/b"
    (tmp_path / "imgtool.yaml").touch()
    assert find(None, tmp_path) == tmp_path / "imgtool.yaml"
    (tmp_path / "image.yaml").touch()
    with pytest.raises(UsageError, match=r"has image.yaml and imgtool.yaml"):
        find(None, tmp_path)
    (tmp_path / "imgtool.yaml").unlink()
    assert find(None, tmp_path) == tmp_path / "image.yaml"


def test_find_names_what_comes_near(tmp_path: Path) -> None:
    (tmp_path / "images/mnist").mkdir(parents=True)
    (tmp_path / "images/mnist/image.yaml").touch()
    with pytest.raises(InputError, match="mnist: no such file or folder") as caught:
        find(Path("mnist"), tmp_path)
    assert "images/mnist?" in (caught.value.hint or "")
    with pytest.raises(InputError) as caught:
        find(Path("images/minst"), tmp_path)
    assert "mnist?" in (caught.value.hint or "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no image\.yaml"):
        find(Path("empty"), tmp_path)


def test_find_says_what_keeps_it_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="file name too long"):
        find(Path("x" * 300), tmp_path)
    with open_folder() as folder:
        (folder / "closed/project").mkdir(parents=True)
        (folder / "closed").chmod(0)

        def look() -> str:
            try:
                return str(find(folder / "closed/project", Path("/")))
            except InputError as error:
                return str(error)

        assert as_nobody(look) == f"{folder}/closed/project: permission denied"


def test_find_gives_a_short_path_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "image.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert find(None, Path.cwd()) == Path("image.yaml")
