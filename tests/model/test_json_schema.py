from __future__ import annotations

import dataclasses
import json
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ruamel.yaml import YAML

from tests.spec_samples import BAD, GOOD, Bad
from training_imgtool.model.decode import list_field_kinds, list_key_paths
from training_imgtool.model.json_schema import json_schema
from training_imgtool.model.spec import ImageSpec, Role, RoleSpec

CHECKOUT = Path(__file__).resolve().parents[2]
SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
# Good for the reader, which takes text first; an editor warns of the unusual spelling.
STRICTER = {"quoted numbers", "a runtime version"}


def as_json(value: Any) -> Any:
    """What an editor sees: JSON has no dates."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value


def read_1_1(text: str) -> Any:
    return as_json(yaml.safe_load(text))


def read_1_2(text: str) -> Any:
    return as_json(YAML(typ="safe", pure=True).load(text))


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert json_schema() == SCHEMA
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("read", [read_1_1, read_1_2])
@pytest.mark.parametrize("name", sorted(set(GOOD) - STRICTER))
def test_right_specs_pass(name: str, read: Any) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(read(GOOD[name]))] == []


@pytest.mark.parametrize("name", ["image", "gpu", "gpu-wheels", "tpu"])
def test_the_examples_pass(name: str) -> None:
    path = CHECKOUT / f"images/mnist/{name}.yaml"
    text = path.read_text(encoding="utf-8")
    for read in (read_1_1, read_1_2):
        assert [error.message for error in VALIDATOR.iter_errors(read(text))] == []


@pytest.mark.parametrize("bad", [bad for bad in BAD if bad.in_schema], ids=lambda bad: bad.label)
def test_wrong_specs_do_not(bad: Bad) -> None:
    assert not VALIDATOR.is_valid(read_1_2(bad.text))


def test_every_key_is_described_and_no_other_is_allowed() -> None:
    objects = [SCHEMA, *SCHEMA["definitions"].values()]
    for schema in objects:
        assert schema["additionalProperties"] is False
        for name, value in schema["properties"].items():
            assert value["description"], name
    names = {name for schema in objects for name in schema["properties"]}
    assert names == set(list_key_paths(ImageSpec))


def test_the_roles_are_those_of_the_spec() -> None:
    roles = SCHEMA["properties"]["roles"]
    assert list(roles["properties"]) == list(Role)
    assert roles["anyOf"] == [{"required": ["master"]}, {"required": ["worker"]}]
    assert SCHEMA["required"] == ["name", "roles"]


def test_defaults_are_those_of_the_types() -> None:
    role = SCHEMA["definitions"]["RoleSpec"]["properties"]
    assert role["count"]["default"] == RoleSpec().count
    assert SCHEMA["properties"]["platform"]["default"] == "linux/amd64"
    assert SCHEMA["properties"]["accelerator"]["default"] == "cpu"
    assert "default" not in SCHEMA["properties"]["base"]
    assert set(list_field_kinds(RoleSpec)) == {field.name for field in dataclasses.fields(RoleSpec)}
