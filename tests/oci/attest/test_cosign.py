"""How cosign is run: its arguments to the letter, what it must answer, and what is refused before it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cosign import Recorder
from tests.oci.registry.support import machine
from training_imgtool.base.errors import CredentialsError, ImgtoolError, LocalFileError, UsageError, VerificationError
from training_imgtool.base.reference import parse_repository
from training_imgtool.oci.attest.cosign import Cosign, Signatory, find_cosign

IMAGE = parse_repository("registry.example.com/team/image").digest(f"sha256:{'a' * 64}")
OTHER = parse_repository("registry.example.com/team/image").digest(f"sha256:{'b' * 64}")
KEY = Signatory(name="gcpkms://project/key")
IDENTITY = Signatory(name="https://ci.example.com/train.yml", issuer="https://issuer.example.com")


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "bin")


def open_cosign(recorder: Recorder, **environ: str) -> Cosign:
    folder = recorder.folder.parent
    found = find_cosign(machine(folder, **{"PATH": f"{recorder.folder}:/usr/bin:/bin", **environ}))
    recorder.calls()
    return found


def claim(digest: str = IMAGE.digest, kind: str = "cosign container image signature") -> str:
    return json.dumps([{"critical": {"image": {"docker-manifest-digest": digest}, "type": kind}}]) + "\n"


@pytest.mark.parametrize(
    ("options", "unlogged"),
    [
        ("--tlog-upload", ["--tlog-upload=false"]),
        ("--tlog-upload --use-signing-config", ["--use-signing-config=false", "--tlog-upload=false"]),
    ],
)
def test_a_key_signs_without_a_public_log(tmp_path: Path, options: str, unlogged: list[str]) -> None:
    recorder = Recorder(tmp_path / "bin", options)
    cosign = open_cosign(recorder, COSIGN_PASSWORD="horse", DOCKER_CONFIG="/logins")
    cosign.sign([IMAGE, OTHER], "image.key")
    (call,) = recorder.calls()  # so that cosign asks for a password once
    assert call["arguments"] == ["sign", "--yes", "--key=image.key", *unlogged, str(IMAGE), str(OTHER)]
    assert call["environ"] == {"COSIGN_PASSWORD": "horse", "DOCKER_CONFIG": "/logins"}


def test_an_identity_signs_with_the_token_of_the_environment(recorder: Recorder) -> None:
    cosign = open_cosign(recorder, SIGSTORE_ID_TOKEN="token")
    cosign.sign([IMAGE], None)
    (call,) = recorder.calls()
    assert call["arguments"] == ["sign", "--yes", "--fulcio-auth-flow=token", str(IMAGE)]
    assert call["environ"] == {"SIGSTORE_ID_TOKEN": "token"}
    recorder.answer("sign", 1)
    with pytest.raises(CredentialsError, match="exit code 1") as raised:
        cosign.sign([IMAGE], None)
    assert "SIGSTORE_ID_TOKEN" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("signatory", "options"),
    [
        (KEY, ["--key=gcpkms://project/key", "--insecure-ignore-tlog=true"]),
        (IDENTITY, [f"--certificate-identity={IDENTITY.name}", f"--certificate-oidc-issuer={IDENTITY.issuer}"]),
    ],
    ids=["key", "identity"],
)
def test_what_counts_as_signed(recorder: Recorder, signatory: Signatory, options: list[str]) -> None:
    cosign = open_cosign(recorder)
    recorder.answer("verify", out=claim())
    cosign.check(IMAGE, signatory)
    (call,) = recorder.calls()
    assert call["arguments"] == ["verify", "--output=json", *options, str(IMAGE)]
    recorder.answer("verify", out="\n" + claim(kind="https://sigstore.dev/cosign/sign/v1"))
    cosign.check(IMAGE, signatory)
    recorder.answer("verify", 1, out=claim(), err="Error: no matching signatures\n")
    with pytest.raises(VerificationError, match=r"no signature by .*: no matching signatures"):
        cosign.check(IMAGE, signatory)


@pytest.mark.parametrize(
    "said", ["", "ok\n", "[]\n", "[5]\n", "{}\n", claim(OTHER.digest), claim(kind="https://slsa.dev/provenance/v1")]
)
def test_an_answer_that_names_no_signature_of_the_image_is_none(recorder: Recorder, said: str) -> None:
    cosign = open_cosign(recorder)
    recorder.answer("verify", out=said)
    with pytest.raises(VerificationError, match="has no signature by"):
        cosign.check(IMAGE, KEY)


def test_the_machine_s_registries(recorder: Recorder, tmp_path: Path) -> None:
    certificates = tmp_path / "ca.pem"
    certificates.touch()
    environ = {"IMGTOOL_INSECURE_REGISTRIES": "plain.example.com:5000", "IMGTOOL_CA_FILE": str(certificates)}
    cosign = open_cosign(recorder, **environ)
    for host in ("plain.example.com:5000", "127.0.0.1:5000", "registry.example.com"):
        cosign.sign([parse_repository(f"{host}/team/image").digest(IMAGE.digest)], "k8s://ns/key")
    plain, loopback, public = (call["arguments"] for call in recorder.calls())
    assert all(f"--registry-cacert={certificates}" in arguments for arguments in (plain, loopback, public))
    assert ["--allow-http-registry=true" in arguments for arguments in (plain, loopback, public)] == [True, True, False]


def test_a_machine_without_a_usable_cosign(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not on PATH") as raised:
        find_cosign(machine(tmp_path, PATH=str(tmp_path)))
    assert "cosign 2 or 3" in str(raised.value.hint)
    old = Recorder(tmp_path / "bin", "--no-tlog-upload --key")
    with pytest.raises(UsageError, match="is not cosign 2 or 3"):
        open_cosign(old).sign([IMAGE], "image.key")


@pytest.mark.parametrize(
    ("name", "issuer", "error", "said"),
    [
        ("", None, UsageError, "empty"),
        (" ", None, UsageError, "empty"),
        ("", "https://issuer", UsageError, "empty"),
        ("me@example.com", "", UsageError, "empty"),
        ("me@example.com", None, UsageError, "not a file"),
        ("https://github.com/team/repo", None, UsageError, "not a file"),
        ("nowhere.pub", None, LocalFileError, "no such file"),
    ],
)
def test_names_that_nobody_signs_with(name: str, issuer: str | None, error: type[ImgtoolError], said: str) -> None:
    with pytest.raises(error, match=said):
        Signatory.read(name, issuer)


def test_keys_that_services_hold_are_not_looked_for_here() -> None:
    for name in ("awskms:///alias/key", "k8s://ns/key", "env://PUBLIC", "pkcs11:token=t"):
        Signatory.read(name, None)
    Signatory.read("me@example.com", "https://issuer")
