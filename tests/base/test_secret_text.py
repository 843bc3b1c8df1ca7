from __future__ import annotations

import pytest

from training_imgtool.base.secret_text import (
    detect_argument_secrets,
    detect_line_secret,
    detect_named_secret,
    detect_secret,
)

SHAPES = (
    ("https://user:pass@host/path", "a URL with a password"),
    ("postgresql://:pass@db:5432", "a URL with a password"),
    ("-----BEGIN PRIVATE KEY-----", "a private key"),
    ("-----BEGIN EC PRIVATE KEY-----", "a private key"),
    ("ghp_" + "a1B2" * 9, "a GitHub token"),
    ("github_pat_" + "a1B2_" * 8, "a GitHub token"),
    *((f"gh{letter}_" + "a1B2" * 9, "a GitHub token") for letter in "ousr"),
    ("glpat-" + "a" * 20, "a GitLab token"),
    ("AKIAIOSFODNN7EXAMPLE", "an AWS access key"),
    ("ASIAIOSFODNN7EXAMPLE", "an AWS access key"),
    ("LTAI" + "a1" * 10, "an Alibaba Cloud access key"),
    ("AIza" + "a" * 35, "a Google API key"),
    ("ya29." + "a" * 40, "a Google access token"),
    *((f"xox{letter}-123456789012", "a Slack token") for letter in "abeoprs"),
    ("hf_" + "a" * 34, "a Hugging Face token"),
    ("sk-" + "a1" * 20, "an API key"),
    ("pypi-" + "a" * 60, "a PyPI token"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.x", "a JSON Web Token"),
)
HARMLESS = (
    "https://host:8080/path", "http://host/a@b:c", "gs://bucket/a:b@c", "user@host", "-----BEGIN CERTIFICATE-----",
    "trainer@my-project.iam.gserviceaccount.com", "sk-learn", "AKIA", "ghp_short", "repo:tag@sha256:" + "a" * 64,
    "--epochs=10", "task-ABCDEFGHIJKLMNOPQRSTUVWXYZ",
)  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), SHAPES)
def test_shapes_are_known_anywhere_in_a_text(text: str, kind: str) -> None:
    assert detect_secret(text) == kind
    assert detect_secret(f"--option={text}") == kind
    assert detect_secret(f"  text {text}, more") == kind


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text(text: str) -> None:
    assert detect_secret(text) is None


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("PASSWORD", "x", True),
        ("db-password", "hunter2", True),
        ("token", "abcdefghijkl", True),
        ("PASSWORD", "", False),
        ("PASSWORD", "$DB_PASSWORD", False),
        ("PASSWORD_FILE", "hunter2", False),
        ("COMPASSWORD", "hunter2", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/secrets/key.json", False),
        ("API_KEY", "projects/p/secrets/s/versions/1", False),
        ("USE_AUTH_TOKEN", "true", False),
        ("PAD_TOKEN", "[PAD]", False),
        ("MONKEY", "abcdefghijkl", False),
        ("ANYTHING", "ghp_" + "a" * 36, True),
    ],
)
def test_names_of_secrets(name: str, value: str, *, secret: bool) -> None:
    assert (detect_named_secret(name, value) is not None) == secret


@pytest.mark.parametrize(
    ("arguments", "indices"),
    [
        (("--password=hunter2",), {0}),
        (("--password", "hunter2"), {1}),
        (("-token", "abcdefghijkl", "x"), {1}),
        (("--password", "--epochs=3"), set()),
        (("--epochs=3", "hunter2"), set()),
        (("password", "hunter2"), set()),
        (("--url=https://u:p@h",), {0}),
        (("--key-file=/run/key", "--pad-token", "<pad>"), set()),
        ((), set()),
    ],
)
def test_arguments(arguments: tuple[str, ...], indices: set[int]) -> None:
    assert set(detect_argument_secrets(arguments)) == indices


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("  DB_PASSWORD: hunter2", True),
        ('  "password" : "hunter2"', True),
        ("args: [--password=hunter2]", True),
        ("env: {A: b, API_KEY: 'abc'}", True),
        ("password:", False),
        ("trainer: {source: trainer}", False),
        ("password_file: hunter2", False),
    ],
)
def test_lines(line: str, *, secret: bool) -> None:
    assert (detect_line_secret(line) is not None) == secret
