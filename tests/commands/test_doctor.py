"""`doctor`: builders of buildx, as a program in PATH lists them; signing keys; the registry's referrers API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

from tests.engines.support import refusing_server, settings
from training_imgtool.commands.doctor import Check, _referrers, examine, exit_code

NODES = [{"Name": "team0", "Endpoint": "tcp://b:1", "Status": "running"}]
BUILDERS = [
    {"Name": "team", "Driver": "remote", "Current": True, "Nodes": NODES},
    {"Name": "dead", "Driver": "kubernetes", "Current": False, "Nodes": [{"Name": "dead0", "Status": "inactive"}]},
]


def builders(folder: Path, **environ: str) -> tuple[Check, int]:
    (folder / "image.yaml").write_text('name: x\ntensorflow: "2.15.1"\nroles: {master: {}}\ntrainer: task.py\n')
    (folder / "task.py").write_text("")
    checks = examine(folder, settings(folder, **{"PATH": str(folder), "DOCKER_HOST": "unix:///nowhere", **environ}))
    check = next(check for check in checks if check.name == "builders")
    return check, exit_code((check,))


@pytest.fixture
def buildx(tmp_path: Path) -> Path:
    lines = "\n".join(map(json.dumps, BUILDERS))
    (tmp_path / "docker-buildx").write_text(f"#!/bin/sh\n/bin/cat <<'E'\n{lines}\nE\n")
    (tmp_path / "docker-buildx").chmod(0o755)
    return tmp_path


def test_builders_with_their_drivers(buildx: Path) -> None:
    check, code = builders(buildx)
    assert (check.ok, check.needed, code) == (True, False, 0)
    assert check.text == "team (remote, tcp://b:1, running, current); dead (kubernetes, not running)"
    assert check.as_data()["facts"]["builders"][0] == {
        "name": "team",
        "driver": "remote",
        "current": True,
        "endpoints": ["tcp://b:1"],
        "running": True,
        "error": None,
    }


@pytest.mark.parametrize("name", ["dead", "nowhere"])
def test_a_builder_that_the_machine_names_must_run(buildx: Path, name: str) -> None:
    check, code = builders(buildx, IMGTOOL_BUILDER=name)
    assert (check.ok, check.needed, code) == (False, True, 5)
    assert check.hint is not None
    assert check.hint.startswith(f"{name} does not run")


def test_a_machine_without_buildx_needs_none(tmp_path: Path) -> None:
    check, code = builders(tmp_path)
    assert (check.ok, check.needed, code) == (False, False, 0)
    assert "buildx is not installed" in check.text


def test_signing_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (check,) = [check for check in examine(None, settings(tmp_path)) if check.name == "signing"]
    assert (check.ok, check.needed, check.facts) == (False, False, {"keys": []})
    key = ec.generate_private_key(ec.SECP256R1())
    locked = form.BestAvailableEncryption(b"pw")
    (tmp_path / "cosign.key").write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked))
    info = form.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "cosign.pub").write_bytes(key.public_key().public_bytes(form.Encoding.PEM, info))
    for environ, errors in (({}, 1), ({"COSIGN_PASSWORD": "wrong"}, 1), ({"COSIGN_PASSWORD": "pw"}, 0)):
        (check,) = [check for check in examine(None, settings(tmp_path, **environ)) if check.name == "signing"]
        assert [key["path"] for key in check.facts["keys"]] == ["cosign.key", "cosign.pub"]
        assert len([key for key in check.facts["keys"] if key["error"]]) == errors
        assert check.ok is not bool(errors)


@pytest.mark.parametrize("status", [200, 404])
def test_the_referrers_api_of_a_registry(tmp_path: Path, status: int) -> None:
    """200 with an empty index is a registry that lists referrers; 404 is one without the API."""
    index = '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}'
    headers = {"Content-Type": "application/vnd.oci.image.index.v1+json"}
    with refusing_server(status, index, headers) as (host, seen):
        check = _referrers(f"{host}/team", "demo", settings(tmp_path))
    assert (check.ok, check.needed, check.facts) == (status == 200, False, {"api": status == 200})
    assert any("/v2/team/demo/referrers/sha256:" in line for line in seen)
