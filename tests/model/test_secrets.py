"""Secrets: where they come from, and what nobody may read in an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.base.errors import FieldError, FieldListError, UsageError
from training_imgtool.base.settings import from_environment
from training_imgtool.model.load import SpecFile, load
from training_imgtool.model.secrets import parse_secret, secret_sources, with_index_logins

SPEC = 'name: x\ntensorflow: "2.15.1"\nroles: {master: {}}\n'


def spec(folder: Path, secrets: str) -> SpecFile:
    (folder / "trainer").mkdir(exist_ok=True)
    (folder / "trainer/task.py").write_text("")
    (folder / "image.yaml").write_text(SPEC + secrets)
    return load(folder / "image.yaml")


def test_the_places_of_a_spec_and_of_the_command_line(tmp_path: Path) -> None:
    spec_file = spec(tmp_path, "secrets:\n  a: {env: A_TOKEN}\n  b: {src: b.txt}\n  c: {index: team}\n  d: {env: D}\n")
    settings = from_environment({"HOME": str(tmp_path)})
    assert {name: found.argument for name, found in secret_sources(spec_file, settings).items()} == {
        "a": "id=a,env=A_TOKEN",
        "b": f"id=b,src={tmp_path}/b.txt",
        "d": "id=d,env=D",
    }


def test_a_file_may_have_a_comma_in_its_name() -> None:
    secret = parse_secret('id=a,"src=/x,y"')
    assert (secret.file, secret.argument) == (Path("/x,y"), 'id=a,"src=/x,y"')


def test_the_type_says_what_the_source_is() -> None:
    assert parse_secret("type=env,ID=a,src=TOKEN").argument == "id=a,env=TOKEN"
    assert parse_secret("type=file,id=a,source=/x").argument == "id=a,src=/x"


@pytest.mark.parametrize("text", ["hunter2", "id=a", "src=x", "id=a,src=x,env=B", "id=a,value=hunter2", "id=a b,env=X"])
def test_a_wrong_secret_shows_no_value(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_secret(text)
    assert "hunter2" not in f"{caught.value}{caught.value.hint}"


def test_a_value_in_the_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises((FieldError, FieldListError)) as caught:
        spec(tmp_path, "secrets:\n  a: {env: not a variable}\n")
    assert "a variable's name" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "login"), [("robot:pass:word", ("robot", "pass:word")), ("tok123\n", ("__token__", "tok123"))]
)
def test_a_secret_is_the_login_of_an_index(tmp_path: Path, value: str, login: tuple[str, str]) -> None:
    spec_file = spec(tmp_path, "secrets:\n  a: {env: LOGIN, index: my-team}\n  b: {env: NOT_SET, index: other}\n")
    settings = with_index_logins(spec_file, from_environment({"HOME": str(tmp_path), "LOGIN": value}))
    found = settings.environ["UV_INDEX_MY_TEAM_USERNAME"], settings.environ["UV_INDEX_MY_TEAM_PASSWORD"]
    assert found == login
    assert "UV_INDEX_OTHER_PASSWORD" not in settings.environ
