"""How cosign is run: its arguments to the letter, what it must answer, and what is refused before it runs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cosign import Recorder
from tests.registry.support import machine
from training_imgtool.attest.cosign import Cosign, Signatory, find_cosign
from training_imgtool.core.errors import CredentialsError, ImgtoolError, LocalFileError, UsageError, VerificationError
from training_imgtool.core.reference import parse_repository

KIND = "https://slsa.dev/provenance/v1"
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


def envelope(**changes: Any) -> str:
    statement = {
        "predicateType": KIND,
        "subject": [{"digest": {"sha256": IMAGE.hex}}],
        "predicate": {"a": 1},
        **changes,
    }
    return json.dumps({"payload": base64.b64encode(json.dumps(statement).encode()).decode()}) + "\n"


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
    cosign.sign(IMAGE, "image.key")
    cosign.attest(IMAGE, "image.key", KIND, {"b": 2, "a": "é"})
    signed, attested = recorder.calls()
    assert signed["arguments"] == ["sign", "--yes", "--key=image.key", *unlogged, str(IMAGE)]
    assert signed["environ"] == {"COSIGN_PASSWORD": "horse", "DOCKER_CONFIG": "/logins"}
    expected = ["attest", "--yes", "--key=image.key", *unlogged, f"--type={KIND}", "--predicate=-", str(IMAGE)]
    assert attested["arguments"] == expected
    assert json.loads(attested["given"]) == {"b": 2, "a": "é"}


def test_an_identity_signs_with_the_token_of_the_environment(recorder: Recorder) -> None:
    cosign = open_cosign(recorder, SIGSTORE_ID_TOKEN="token")
    cosign.sign(IMAGE, None)
    (call,) = recorder.calls()
    assert call["arguments"] == ["sign", "--yes", "--fulcio-auth-flow=token", str(IMAGE)]
    assert call["environ"] == {"SIGSTORE_ID_TOKEN": "token"}
    recorder.answer("sign", 1, err="Generating keys...\nError: no token\nerror during command execution: no token\n")
    with pytest.raises(CredentialsError, match=r"does not sign .*: no token$") as raised:
        cosign.sign(IMAGE, None)
    assert "SIGSTORE_ID_TOKEN" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Error: first\nError: second\nlater\n", "second"),
        ("Generating keys...\nsignal: killed\n\n", "signal: killed"),
        ("", "exit code 3"),
    ],
)
def test_the_reason_is_the_last_error_else_the_last_line(recorder: Recorder, said: str, reason: str) -> None:
    cosign = open_cosign(recorder)
    recorder.answer("sign", 3, err=said)
    with pytest.raises(CredentialsError, match=f"does not sign .*: {reason}$"):
        cosign.sign(IMAGE, "image.key")


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


@pytest.mark.parametrize("said", ["", "ok\n", "[]\n", "[5]\n", "{}\n", claim(OTHER.digest), claim(kind=KIND)])
def test_an_answer_that_names_no_signature_of_the_image_is_none(recorder: Recorder, said: str) -> None:
    cosign = open_cosign(recorder)
    recorder.answer("verify", out=said)
    with pytest.raises(VerificationError, match="has no signature by"):
        cosign.check(IMAGE, KEY)


def test_only_statements_about_the_image_are_read(recorder: Recorder) -> None:
    cosign = open_cosign(recorder)
    others = [
        envelope(predicateType="https://example.com/other"),
        envelope(subject=[{"digest": {"sha256": OTHER.hex}}]),
        envelope(subject=None),
        '{"payload": "no base64"}\n',
        "no JSON\n",
    ]
    recorder.answer("verify-attestation", out="".join([*others, envelope(), envelope(predicate={"a": 2})]))
    assert cosign.read_attested(IMAGE, KEY, KIND) == ({"a": 1}, {"a": 2})
    recorder.answer("verify-attestation", 1, out=envelope())
    assert cosign.read_attested(IMAGE, KEY, KIND) == ()
    expected = ["verify-attestation", f"--type={KIND}", "--output=json", *KEY.options, str(IMAGE)]
    assert [call["arguments"] for call in recorder.calls()] == [expected, expected]


def test_the_machine_s_registries(recorder: Recorder, tmp_path: Path) -> None:
    certificates = tmp_path / "ca.pem"
    certificates.touch()
    environ = {"IMGTOOL_INSECURE_REGISTRIES": "plain.example.com:5000", "IMGTOOL_CA_FILE": str(certificates)}
    cosign = open_cosign(recorder, **environ)
    for host in ("plain.example.com:5000", "127.0.0.1:5000", "registry.example.com"):
        cosign.sign(parse_repository(f"{host}/team/image").digest(IMAGE.digest), "k8s://ns/key")
    plain, loopback, public = (call["arguments"] for call in recorder.calls())
    assert all(f"--registry-cacert={certificates}" in arguments for arguments in (plain, loopback, public))
    assert ["--allow-http-registry=true" in arguments for arguments in (plain, loopback, public)] == [True, True, False]


def test_a_machine_without_a_usable_cosign(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not on PATH") as raised:
        find_cosign(machine(tmp_path, PATH=str(tmp_path)))
    assert "cosign 2 or 3" in str(raised.value.hint)
    old = Recorder(tmp_path / "bin", "--no-tlog-upload --key")
    with pytest.raises(UsageError, match="is not cosign 2 or 3"):
        open_cosign(old)


@pytest.mark.parametrize(
    ("signatory", "error", "said"),
    [
        (Signatory(name=""), UsageError, "empty"),
        (Signatory(name=" "), UsageError, "empty"),
        (Signatory(name="", issuer="https://issuer"), UsageError, "empty"),
        (Signatory(name="me@example.com", issuer=""), UsageError, "empty"),
        (Signatory(name="me@example.com"), UsageError, "not a file"),
        (Signatory(name="https://github.com/team/repo"), UsageError, "not a file"),
        (Signatory(name="nowhere.pub"), LocalFileError, "no such file"),
    ],
)
def test_names_that_nobody_signs_with(signatory: Signatory, error: type[ImgtoolError], said: str) -> None:
    with pytest.raises(error, match=said):
        signatory.check()


def test_keys_that_services_hold_are_not_looked_for_here() -> None:
    for name in ("awskms:///alias/key", "k8s://ns/key", "env://PUBLIC", "pkcs11:token=t"):
        Signatory(name=name).check()
    Signatory(name="me@example.com", issuer="https://issuer").check()
