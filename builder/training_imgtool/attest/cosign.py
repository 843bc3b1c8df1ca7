"""Runs the `cosign` program, which signs images and statements about them, and checks both.

imgtool has no signature format of its own: keys, key services, identities, logins and formats are cosign's. What a key
signs goes into no transparency log, since an entry publishes the image's name; what an identity signs always does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training_imgtool.core.errors import CredentialsError, LocalFileError, TemporaryError, UsageError, VerificationError
from training_imgtool.core.gates import check_option
from training_imgtool.core.reference import Digest
from training_imgtool.core.sanitize import join_lines
from training_imgtool.core.settings import Settings
from training_imgtool.http.addresses import speaks_http
from training_imgtool.spec.load import SpecFile

_INSTALL = "install cosign 2 or 3: docs.sigstore.dev/cosign/system_config/installation"
_SECONDS = 240  # cosign's own limit is 180
# cosign 3 lists signed attestations as signatures too; only these types say that the image itself is signed.
_SIGNATURES = ("cosign container image signature", "https://sigstore.dev/cosign/sign/v1")
_OWN_KEY = "OWN_PUBLIC_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatory:
    """Who must have signed, as the command line names them.

    Attributes:
        name: a public key as cosign takes it (a file, `gcpkms://…`), or the identity that `issuer` vouches for.
        issuer: the URL of an OIDC provider; None for a key.
    """

    name: str
    issuer: str | None = None

    def check(self) -> None:
        """Raises UsageError unless it names a key or an identity, LocalFileError if a key's file is missing."""
        check_option(("--issuer",), (self.issuer,))
        check_option(("--signature",), (self.name,))
        if self.issuer is None and not is_key_reference(self.name) and not Path(self.name).is_file():
            if "@" in self.name or "://" in self.name:
                raise UsageError(f"{self.name} is not a file", hint="for an identity, add --issuer URL")
            raise LocalFileError(f"{self.name}: no such file")

    @property
    def options(self) -> tuple[str, ...]:
        """How cosign is told who must have signed."""
        if self.issuer is None:
            return (f"--key={self.name}", "--insecure-ignore-tlog=true")
        return (f"--certificate-identity={self.name}", f"--certificate-oidc-issuer={self.issuer}")


def find_signatory(spec_file: SpecFile) -> Signatory | None:
    """Returns who must have signed the images of a spec; None if it asks for nobody. Raises what `check` does."""
    wanted = spec_file.spec.signature
    if wanted is None:
        return None
    is_file = wanted.issuer is None and not is_key_reference(wanted.by)
    found = Signatory(name=str(spec_file.folder / wanted.by) if is_file else wanted.by, issuer=wanted.issuer)
    found.check()
    return found


def is_key_reference(key: str) -> bool:
    """Tells keys that a service or a variable holds (`gcpkms://…`, `env://NAME`) from files and web addresses."""
    return re.match(r"(?!https?:)[a-z0-9]+:", key) is not None


def find_cosign(settings: Settings) -> Cosign:
    """Finds the program on PATH; raises UsageError if there is none, or one of an older kind."""
    program = shutil.which("cosign", path=settings.environ.get("PATH"))
    if program is None:
        raise UsageError("signatures need the program cosign, which is not on PATH", hint=_INSTALL)
    # Distributions build cosign without a version, so its options tell which one it is.
    options = re.findall(
        r"\s(--[a-z-]+)", Cosign(program=program, unlogged=(), settings=settings).run("sign", "--help").stdout
    )
    if "--tlog-upload" not in options:
        raise UsageError(f"{program} is not cosign 2 or 3", hint=_INSTALL)
    chosen = ("--use-signing-config=false",) if "--use-signing-config" in options else ()
    return Cosign(program=program, unlogged=(*chosen, "--tlog-upload=false"), settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosign:
    """The program, with the options that keep a key's signature out of the transparency log."""

    program: str
    unlogged: tuple[str, ...]
    settings: Settings

    def sign(self, image: Digest, key: str | None) -> None:
        """Signs an image with a key, or without one as the identity of an OIDC token.

        Raises CredentialsError with cosign's own words, and what `run` raises.
        """
        self._sign("sign", image, key)

    def attest(self, image: Digest, key: str | None, kind: str, predicate: Mapping[str, Any]) -> None:
        """Signs an in-toto statement about an image; raises as `sign`."""
        self._sign("attest", image, key, f"--type={kind}", "--predicate=-", given=json.dumps(predicate, sort_keys=True))

    def check(self, image: Digest, signatory: Signatory) -> None:
        """Raises VerificationError unless cosign says that the signatory signed the image, and what `run` raises."""
        done = self.run("verify", "--output=json", *signatory.options, image=image)
        if done.returncode:
            raise VerificationError(f"{image} has no signature by {signatory.name}: {_read_complaint(done)}")
        if not any(_is_signature(entry, image) for entry in _read_lines(done.stdout)):
            raise VerificationError(f"{image} has no signature by {signatory.name}, only attestations")

    def read_attested(self, image: Digest, signatory: Signatory, kind: str) -> tuple[Any, ...]:
        """Returns the predicates of a kind that the signatory signed about an image; raises what `run` raises."""
        done = self.run("verify-attestation", f"--type={kind}", "--output=json", *signatory.options, image=image)
        found = (_read_predicate(entry, image, kind) for entry in _read_lines(done.stdout))
        return () if done.returncode else tuple(predicate for predicate in found if predicate is not None)

    def with_own_key(self, key: str) -> tuple[Cosign, Signatory]:
        """Returns what checks the signatures of a private key; raises CredentialsError if it cannot be read."""
        done = self.run("public-key", f"--key={key}")
        if done.returncode:
            raise CredentialsError(f"cosign does not read {key}: {_read_complaint(done)}")
        environ = {**self.settings.environ, _OWN_KEY: done.stdout}
        return replace(self, settings=replace(self.settings, environ=environ)), Signatory(name=f"env://{_OWN_KEY}")

    def run(
        self, verb: str, *options: str, image: Digest | None = None, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Runs the program; raises TemporaryError if it does not end, LocalFileError if it does not start."""
        command = [self.program, verb, *options]
        if image is not None:
            command += [*self._list_access(image), str(image)]
        try:
            return subprocess.run(
                command, env=dict(self.settings.environ), input=given, capture_output=True, encoding="utf-8",
                errors="replace", timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise TemporaryError(f"cosign {verb} did not end within {_SECONDS} s") from error
        except OSError as error:
            raise LocalFileError(f"{self.program}: {error.strerror or error}") from error

    def _sign(self, verb: str, image: Digest, key: str | None, *options: str, given: str = "") -> None:
        # Without a token, the flow `token` ends at once; the others wait for a browser.
        signer = ("--fulcio-auth-flow=token",) if key is None else (f"--key={key}", *self.unlogged)
        done = self.run(verb, "--yes", *signer, *options, image=image, given=given)
        if done.returncode:
            hint = (
                "set SIGSTORE_ID_TOKEN to an OIDC token for the audience sigstore, or give --key"
                if key is None
                else None
            )
            raise CredentialsError(f"cosign does not sign {image}: {_read_complaint(done)}", hint=hint)

    def _list_access(self, image: Digest) -> Iterator[str]:
        """Yields the registry's options, from the machine's settings; logins cosign reads from DOCKER_CONFIG itself."""
        if speaks_http(image.repository.registry, self.settings.insecure):
            yield "--allow-http-registry=true"
        if self.settings.ca_file is not None:
            yield f"--registry-cacert={self.settings.ca_file}"


def _read_complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Picks what the program said last; it says each error twice."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return join_lines((errors or lines or [f"exit code {done.returncode}"])[-1], limit=300)


def _read_lines(text: str) -> Iterator[dict[str, Any]]:
    """Yields the objects that the program prints, one a line or in lists."""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        yield from (entry for entry in (found if isinstance(found, list) else [found]) if isinstance(entry, dict))


def _is_signature(entry: Mapping[str, Any], image: Digest) -> bool:
    try:
        critical = entry["critical"]
        return critical["type"] in _SIGNATURES and critical["image"]["docker-manifest-digest"] == image.digest
    except (KeyError, TypeError):
        return False


def _read_predicate(entry: Mapping[str, Any], image: Digest, kind: str) -> Any:
    """Reads the predicate in an envelope around an in-toto statement about an image; None for anything else."""
    try:
        statement = json.loads(base64.b64decode(entry["payload"], validate=True))
        about = [subject["digest"]["sha256"] for subject in statement["subject"]]
        return statement["predicate"] if statement["predicateType"] == kind and image.hex in about else None
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        return None
