"""Trees of specs between runs: the same as without, and never believed when anything differs."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spec_samples import BAD, GOOD, HEAD, Bad, make_folder
from tests.yamlfile.test_reader import REFUSED
from training_imgtool.core.errors import FieldListError, InputError
from training_imgtool.spec import load as loading
from training_imgtool.spec.load import load
from training_imgtool.spec.tree_cache import SpecMemo
from training_imgtool.yamlfile.reader import parse
from training_imgtool.yamlfile.tree import Items, Position, Scalar, Table

CHECKOUT = Path(__file__).resolve().parents[2]
IMAGES = sorted((CHECKOUT / "images").glob("*/image.yaml"))
SMALL = {message[:60]: data for data, message in REFUSED if len(data) < 1000}
SPEC = HEAD + 'args: [a, "b"]\nenv: {A: 2.10}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "spec")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was parsed."""
    found: list[bytes] = []

    def noted(data: bytes, name: str, *, what: str) -> Table:
        found.append(data)
        return parse(data, name, what=what)

    monkeypatch.setattr(loading, "parse", noted)
    return found


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "image.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def kept(cache: Path) -> list[Path]:
    return sorted((cache / "specs").iterdir()) if cache.is_dir() else []


def three(path: Path, cache: Path, parsed: list[bytes]) -> None:
    """Loads without a memo, with one that is empty and with one that knows: all the same."""
    without = load(path)
    assert load(path, cache) == without
    parsed.clear()
    again = load(path, cache)
    assert again == without
    assert parsed == []
    data = path.read_bytes()
    assert SpecMemo(cache, data).tree() == parse(data, "f")


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_right_specs(folder: Path, cache: Path, parsed: list[bytes], text: str) -> None:
    three(written(folder, text), cache, parsed)


@pytest.mark.parametrize("path", IMAGES, ids=[path.parent.name for path in IMAGES])
def test_our_images(path: Path, cache: Path, parsed: list[bytes]) -> None:
    three(path, cache, parsed)


def test_text_of_every_kind(folder: Path, cache: Path, parsed: list[bytes]) -> None:
    text = 'args: ["é𝄞 \\" \\\\", "", \'~\', "|", "null",\n  more]\ntrainer:\n  module: >-\n    a.b\n'
    three(written(folder, HEAD + text), cache, parsed)


def test_another_spec_is_parsed(folder: Path, cache: Path, parsed: list[bytes]) -> None:
    load(written(folder, SPEC), cache)
    changed = load(written(folder, SPEC.replace("2.10", "2.11")), cache)
    assert len(parsed) == 2
    assert changed.spec.env == {"A": "2.11"}


def test_the_name_is_that_of_the_file_that_is_read(folder: Path, cache: Path, parsed: list[bytes]) -> None:
    load(written(folder, SPEC), cache)
    other = written(make_folder(folder / "other"), SPEC)
    assert load(other, cache).locate("args[1]") == f"{other}:4:11"
    assert len(parsed) == 1


def test_what_depends_on_the_folder_is_looked_at_again(folder: Path, cache: Path) -> None:
    path = written(folder, HEAD + "requirements: requirements.txt\n")
    load(path, cache)
    (folder / "requirements.txt").unlink()
    assert message(path) == message(path, cache)


def message(path: Path, cache: Path | None = None) -> list[tuple[object, ...]]:
    with pytest.raises((InputError, FieldListError)) as caught:
        load(path, cache)
    error = caught.value
    errors = error.errors if isinstance(error, FieldListError) else (error,)
    return [(type(one), str(one), one.hint, one.details) for one in errors]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.label)
def test_wrong_values_are_told_as_ever_and_not_kept(folder: Path, cache: Path, bad: Bad) -> None:
    path = written(folder, bad.text)
    assert message(path) == message(path, cache) == message(path, cache)
    assert kept(cache) == []


@pytest.mark.parametrize("data", SMALL.values(), ids=SMALL)
def test_what_is_no_spec_is_told_as_ever_and_not_kept(folder: Path, cache: Path, data: bytes) -> None:
    path = written(folder, data)
    assert message(path) == message(path, cache) == message(path, cache)
    assert kept(cache) == []


def with_hash(value: object) -> bytes:
    body = json.dumps(value).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


DAMAGE: dict[str, bytes] = {
    "empty": b"",
    "no hash": b"[1,1,[],[]]",
    "wrong hash": b"0" * 64 + b"\n[1,1,[],[]]",
    "no JSON": hashlib.sha256(b"[").hexdigest().encode() + b"\n[",
    "deep": hashlib.sha256(b"[" * 200_000).hexdigest().encode() + b"\n" + b"[" * 200_000,
    "too big": with_hash([1, 1, "x" * (1 << 20), True]),
    "nothing": with_hash(None),
    "a mapping": with_hash({"name": "evil"}),
    "a list": with_hash([1, 1, [[1, 1, "a", True]]]),
    "text": with_hash([1, 1, "a", False]),
    "no place": with_hash(["1", 1, [], []]),
    "no text": with_hash([1, 1, [[1, 1, "a", False]], [[1, 1, 2, False]]]),
    "a key that is a list": with_hash([1, 1, [[1, 1, []]], [[1, 1, "b", False]]]),
    "a key too many": with_hash([1, 1, [[1, 1, "a", False]], []]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_not_believed_and_made_anew(
    folder: Path, cache: Path, parsed: list[bytes], damage: bytes
) -> None:
    whole = load(written(folder, SPEC), cache)
    (path,) = kept(cache)
    before = path.read_bytes()
    path.write_bytes(damage)
    assert load(whole.path, cache) == whole
    assert len(parsed) == 2
    assert path.read_bytes() == before


def test_the_file_is_the_users_own(folder: Path, cache: Path) -> None:
    load(written(folder, SPEC), cache)
    (path,) = kept(cache)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path, cache: Path, parsed: list[bytes]) -> None:
    cache.write_text("a file where the folder should be")
    path = written(folder, SPEC)
    assert load(path, cache) == load(path, cache) == load(path)
    assert len(parsed) == 3


def test_a_folder_in_the_files_place_is_no_error(folder: Path, cache: Path) -> None:
    path = written(folder, SPEC)
    load(path, cache)
    (place,) = kept(cache)
    place.unlink()
    place.mkdir()
    assert load(path, cache) == load(path)


def test_aliases_that_stand_for_much_are_not_kept(cache: Path) -> None:
    data = b"a: &x " + b"x" * 100_000 + b"\nb: [" + b"*x, " * 9_000 + b"]\n"
    memo = SpecMemo(cache, data)
    memo.keep(parse(data, "f"))
    assert kept(cache) == []


@pytest.mark.parametrize("text", ["\ud800", "\n" * (1 << 20)], ids=["half a character", "more with escapes"])
def test_what_a_file_cannot_hold_is_not_kept(cache: Path, text: str) -> None:
    at = Position(1, 1)
    SpecMemo(cache, b"").keep(Table(at, ((Scalar(at, "a", False), Items(at, (Scalar(at, text, True),))),)))
    assert kept(cache) == []


def test_a_second_run_does_not_load_yaml(cache: Path) -> None:
    program = (
        "import sys, typer.main; from training_imgtool.cli.app import command_line\n"
        "typer.main.get_command(command_line(('show',))).main(['show', 'images/mnist'], standalone_mode=False)\n"
        "print('yaml' in sys.modules, file=sys.stderr)"
    )
    env = {**os.environ, "IMGTOOL_CACHE": str(cache), "IMGTOOL_REGISTRY": "registry.test/x"}
    command = [sys.executable, "-c", program]
    runs = [
        subprocess.run(command, env=env, cwd=CHECKOUT, capture_output=True, text=True, check=False) for _ in range(2)
    ]
    assert [run.stderr for run in runs] == ["True\n", "False\n"]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.startswith("mnist ")
