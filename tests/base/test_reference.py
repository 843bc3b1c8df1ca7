"""A login in an address is refused, and not repeated where logs are read."""

from __future__ import annotations

import pytest

from training_imgtool.base.reference import Digest, InvalidReferenceError, parse_reference, parse_repository

HASH = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    "text",
    [
        "user:s3cr3t@127.0.0.1:7700/x/image",
        "user:s3/cr3t@registry.example/x",
        "https://user:s3cr3t@registry.example/x",
        f"user:s3cr3t@registry.example:5000/x@{HASH}",
        "s3cr3t@registry.example/x",
    ],
)
def test_a_login_in_an_address_is_not_repeated(text: str) -> None:
    for parse in (parse_repository, parse_reference):
        with pytest.raises(InvalidReferenceError, match="without a user name or password") as caught:
            parse(text)
        assert "cr3t" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("text", ["name:", f"name:@{HASH}", "host.example:5000/a:", "0" * 64, f"{'a' * 64}:latest"])
def test_what_engines_take_for_no_name(text: str) -> None:
    with pytest.raises(InvalidReferenceError):
        parse_reference(text)


def test_only_docker_hub_has_a_library() -> None:
    assert str(parse_reference("python:3")) == "docker.io/library/python:3"
    assert str(parse_reference("host.example/python:3")) == "host.example/python:3"


@pytest.mark.parametrize("text", [f"host.example:5000/a/b@{HASH}", f"a/b:tag@{HASH}"])
def test_a_digest_is_no_login(text: str) -> None:
    assert isinstance(parse_reference(text), Digest)
