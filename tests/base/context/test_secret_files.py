from __future__ import annotations

import pytest

from training_imgtool.base.context.secret_files import allowed, by_content, by_name


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "a/.env.production",
        "id_rsa",
        "a.pem",
        ".netrc",
        ".pypirc",
        "home/.aws/credentials",
        ".ssh/config",
        ".env.py",
        ".ENV.Local.py",
        "kubeconfig",
        ".docker/config.json",
        "x/.config/gcloud/anything",
        "application_default_credentials.json",
        "client_secret_12.json",
        "my/service_account_prod.json",
        ".git-credentials",
        "secrets.yaml",
    ],
)
def test_names_of_secrets(path: str) -> None:
    assert by_name(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        "env.py",
        "keys.py",
        "id_rsa.pub",
        "pem.txt",
        "docker/config.json",
        "monkey",
        "secrets.py",
        "client_secret_12.json.py",
        "aws/x",
    ],
)
def test_names_of_other_things(path: str) -> None:
    assert not by_name(path)


@pytest.mark.parametrize(
    "head",
    [
        b'{\n "type": "service_account",',
        b'{"type":"authorized_user"}',
        b"-----BEGIN RSA PRIVATE KEY-----\n",
        b'{"type"\n:\t"external_account"}',
        b"x\n-----BEGIN PRIVATE KEY-----",
        b"PuTTY-User-Key-File-3: ssh-ed25519",
    ],
)
def test_contents_of_secrets(head: bytes) -> None:
    assert by_content("a.txt", head)


def test_contents_of_other_things() -> None:
    assert not by_content("a.txt", b"-----BEGIN CERTIFICATE-----")
    assert by_content("a.bin", bytes(100_000) + b"GOCSP" + b"X-" + b"q8" * 20)
    assert not by_content("a.bin", bytes(1 << 20) + b'"type": "service_account"')


def test_allowed_names_files_folders_and_patterns() -> None:
    assert allowed("a/b.pem", ["a/b.pem"])
    assert allowed("a/b.pem", ["a/"])
    assert allowed("a/b.pem", ["a/*.pem"])
    assert not allowed("a/b.pem", ["*.pem"])
