"""The user's configuration: its place, its precedence, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.base.errors import UsageError
from training_imgtool.base.settings import Settings, from_environment

WHOLE = """\
registry = "registry.example.com/team"
builder = "far"
ca_file = "ca.pem"
cache = "~/c"
torch_index = "https://mirror.example.com/whl/"
insecure_registries = ["a:1", "b:2"]
mirrors = { "docker.io" = "m:5000" }

[debian_mirrors]
"http://a" = "http://b"

[builder_registries]
"docker.io" = "http://c"
"""


def read(folder: Path, text: str, **environ: str) -> Settings:
    (folder / "imgtool").mkdir(exist_ok=True)
    (folder / "imgtool/config.toml").write_text(text)
    return from_environment({"HOME": "/home/me", "XDG_CONFIG_HOME": str(folder), **environ})


def test_every_key_is_a_setting_and_variables_win(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE, XDG_STATE_HOME="/state")
    assert (found.cache, found.ca_file, found.builder) == (Path("/home/me/c"), tmp_path / "imgtool/ca.pem", "far")
    assert (found.mirrors, found.insecure) == ({"docker.io": "m:5000"}, ("a:1", "b:2"))
    assert found.debian_mirrors == {"http://a": "http://b"}
    assert found.builder_registries == {"docker.io": "http://c"}
    assert found.build_indexes == "https://mirror.example.com/whl"
    assert found.state == Path("/state/imgtool")
    assert "IMGTOOL_MIRRORS" not in found.environ  # of the programs that imgtool starts
    other = read(tmp_path, WHOLE, IMGTOOL_CACHE="/other", IMGTOOL_BUILDER="near", IMGTOOL_INSECURE_REGISTRIES="")
    assert (other.cache, other.builder, other.insecure) == (Path("/other"), "near", ("a:1", "b:2"))


def test_the_registry_comes_from_the_nearest_place(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    place = f"{tmp_path}/imgtool/config.toml:1"
    assert found.registry is None
    given = found.find_registry(None, None)
    assert given is not None
    assert (given.text, given.place) == ("registry.example.com/team", place)
    assert found.find_registry(None, "spec.example.com/x") is None
    named = read(tmp_path, WHOLE, IMGTOOL_REGISTRY="variable.example.com/x")
    assert [
        given and given.place for given in (named.find_registry(None, "s/x"), named.find_registry("o/x", "s/x"))
    ] == [
        "IMGTOOL_REGISTRY",
        "--registry",
    ]


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('\nregistri = "x"', "config.toml:2: unknown key 'registri'", "did you mean registry?"),
        ("locked = true", "config.toml:1: unknown key 'locked'", "the keys are registry, "),
        ("[mirrors]\na = 1", "config.toml:1: mirrors: expected a table without empty strings", ""),
        ("insecure_registries = 3", "insecure_registries: expected a list", ""),
        ('cache = ""', "config.toml:1: cache: expected a text", ""),
        ('insecure_registries = "a"', "insecure_registries: expected a list", ""),
        ("registry = x", "config.toml: not TOML: Invalid value (at line 1, column 12)", ""),
    ],
)
def test_what_is_wrong_has_a_place(tmp_path: Path, text: str, says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert says in str(caught.value)
    assert hint in (caught.value.hint or "")
