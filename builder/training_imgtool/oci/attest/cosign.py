"""Runs the `cosign` program, which signs images and checks signatures.

imgtool does not define a signature format; cosign provides keys, key services, identities, logins and formats. imgtool
has cosign keep a signature by a key out of the transparency log, because a log entry publishes the image's name. cosign
always adds a signature by an identity to the log.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from training_imgtool.base.errors import CredentialsError, LocalFileError, TemporaryError, UsageError, VerificationError
from training_imgtool.base.gates import check_given
from training_imgtool.base.http.addresses import speaks_http
from training_imgtool.base.reference import Digest
from training_imgtool.base.sanitize import join_lines
from training_imgtool.base.settings import Settings

_INSTALL = "install cosign 2 or 3: docs.sigstore.dev/cosign/system_config/installation"
_SECONDS = 240  # cosign's own limit is 180
# cosign 3 also lists signed attestations as signatures. Only these types mean that the image itself is signed.
_SIGNATURES = ("cosign container image signature", "https://sigstore.dev/cosign/sign/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatory:
    """The key or identity that must have signed an image, as the command line names it.

    Attributes:
        name: a public key in a form that cosign accepts (a file, `gcpkms://…`), or the identity that `issuer` confirms.
        issuer: the URL of an OIDC provider; None for a key.
    """

    name: str
    issuer: str | None = None

    @classmethod
    def read(cls, name: str | None, issuer: str | None) -> Self | None:
        """Returns whose signatures to check, from the options --signature and --issuer; None if neither is given.

        Raises UsageError unless the name is a key or an identity, and LocalFileError if a key's file is missing.
        """
        if name is None and issuer is None:
            return None
        signatory = cls(name=name or "", issuer=issuer)
        check_given("--issuer", issuer)
        check_given("--signature", signatory.name)
        if issuer is None:
            is_file = Path(signatory.name).exists()
            if ("@" in signatory.name or signatory.name.startswith("http")) and not is_file:
                raise UsageError(f"{signatory.name} is not a file", hint="if you mean an identity, add --issuer URL")
            check_key(signatory.name)
        return signatory

    @property
    def options(self) -> tuple[str, ...]:
        """The options that tell cosign who must have signed the image."""
        if self.issuer is None:
            return (f"--key={self.name}", "--insecure-ignore-tlog=true")
        return (f"--certificate-identity={self.name}", f"--certificate-oidc-issuer={self.issuer}")


def check_key(key: str) -> None:
    """Raises LocalFileError if the key is a missing file. Accepts keys in services (`gcpkms://…`) and in variables."""
    if re.match(r"[a-z0-9]+:", key) is None and not Path(key).is_file():
        raise LocalFileError(f"{key}: {'is no regular file' if Path(key).exists() else 'no such file'}")


def find_cosign(settings: Settings) -> Cosign:
    """Finds cosign on PATH; raises UsageError if cosign is missing."""
    program = shutil.which("cosign", path=settings.environ.get("PATH"))
    if program is None:
        raise UsageError("signatures need the program cosign, which is not on PATH", hint=_INSTALL)
    return Cosign(program=program, settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosign:
    """The program cosign, with the registries and logins of this machine."""

    program: str
    settings: Settings

    def sign(self, images: Sequence[Digest], key: str | None) -> None:
        """Signs images with a key, or as the identity of an OIDC token. cosign prints progress on stderr.

        Raises CredentialsError if cosign does not sign all images, UsageError if cosign is too old.
        """
        # Without a token, the flow `token` fails at once. Other flows wait for a browser.
        signer = ("--fulcio-auth-flow=token",) if key is None else (f"--key={key}", *self._stay_unlogged())
        command = [self.program, "sign", "--yes", *signer, *self._list_access(images[0]), *map(str, images)]
        done = subprocess.run(command, env=dict(self.settings.environ), stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise CredentialsError(
                f"cosign did not sign the images: exit code {done.returncode}",
                hint="see cosign's messages above; without --key, set SIGSTORE_ID_TOKEN to an OIDC token for the "
                "audience sigstore",
            )

    def check(self, image: Digest, signatory: Signatory) -> None:
        """Raises VerificationError unless cosign confirms that the signatory signed the image; also `_run`'s errors."""
        done = self._run("verify", "--output=json", *signatory.options, *self._list_access(image), str(image))
        if done.returncode:
            raise VerificationError(f"{image} has no signature by {signatory.name}: {_read_complaint(done)}")
        if not any(_is_signature(entry, image) for entry in _read_lines(done.stdout)):
            raise VerificationError(f"{image} has no signature by {signatory.name}, only attestations")

    def _stay_unlogged(self) -> tuple[str, ...]:
        """Returns the options that keep a key's signature out of the transparency log.

        cosign of some Linux distributions prints no version, so imgtool looks at the options that cosign knows.
        """
        options = re.findall(r"\s(--[a-z-]+)", self._run("sign", "--help").stdout)
        if "--tlog-upload" not in options:
            raise UsageError(f"{self.program} is not cosign 2 or 3", hint=_INSTALL)
        chosen = ("--use-signing-config=false",) if "--use-signing-config" in options else ()
        return (*chosen, "--tlog-upload=false")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs cosign; raises TemporaryError if cosign does not end, LocalFileError if cosign does not start."""
        try:
            return subprocess.run(
                [self.program, *arguments],
                env=dict(self.settings.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TemporaryError(f"cosign {arguments[0]} did not end within {_SECONDS} s") from error
        except OSError as error:
            raise LocalFileError(f"{self.program}: {error.strerror or error}") from error

    def _list_access(self, image: Digest) -> Iterator[str]:
        """Yields cosign's options for the image's registry. cosign itself reads logins from DOCKER_CONFIG."""
        if speaks_http(image.repository.registry, self.settings.insecure):
            yield "--allow-http-registry=true"
        if self.settings.ca_file is not None:
            yield f"--registry-cacert={self.settings.ca_file}"


def _read_complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Returns only the last message of cosign, because cosign prints each error twice."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return join_lines((errors or lines or [f"exit code {done.returncode}"])[-1], limit=300)


def _read_lines(text: str) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects in cosign's output. Each line contains one object or one list of objects."""
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
