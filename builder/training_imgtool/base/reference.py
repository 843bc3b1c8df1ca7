"""Types for image names: a repository, a tag in a repository, and a digest in a repository.

Image names follow the grammar of the OCI distribution specification 1.1 ("Pulling manifests") and of
distribution/reference: a registry host with an optional port, a path of lower-case components, then `:TAG` (at most 128
characters) or `@sha256:` and 64 hexadecimal digits. A name without a host belongs to Docker Hub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from training_imgtool.base.errors import InputError
from training_imgtool.base.hidden import remember_secret

DOCKER_HUB = "docker.io"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_ID = re.compile(r"[0-9a-f]{64}\Z")
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*\Z")
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?\Z"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_LOGIN = re.compile(r"@(?![a-z0-9]+:[0-9a-fA-F]{8})[^@]*/")  # an '@' before a path, not before a digest
_LONGEST_NAME = 255


class InvalidReferenceError(InputError):
    """A name does not follow the grammar, so no registry would accept it."""


@dataclass(frozen=True, slots=True, order=True)
class Repository:
    """A registry host and a path in it, such as `us-docker.pkg.dev` and `project/training/mnist`."""

    registry: str
    path: str

    def __str__(self) -> str:
        return f"{self.registry}/{self.path}"

    def tag(self, name: str) -> Tag:
        """Returns the reference to the tag `name` in this repository; raises InvalidReferenceError."""
        if not _TAG.match(name):
            raise InvalidReferenceError(
                f"{name!r} is not a tag: expected 1 to 128 letters, digits or '._-', not beginning with '.' or '-'"
            )
        return Tag(self, name)

    def digest(self, digest: str) -> Digest:
        """Returns the reference to the manifest `digest` in this repository; raises InvalidReferenceError."""
        return Digest(self, check_digest(digest))

    def child(self, name: str) -> Repository:
        """Returns the repository `name` below this one."""
        return parse_repository(f"{self}/{name}")


@dataclass(frozen=True, slots=True, order=True)
class Tag:
    """A name for an image. A push can move a tag to another image, so job files contain no tags."""

    repository: Repository
    name: str

    def __str__(self) -> str:
        return f"{self.repository}:{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A name with the hash of a manifest's bytes. Such a name always means the same image."""

    repository: Repository
    digest: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}"

    @property
    def hex(self) -> str:
        """The 64 hexadecimal digits."""
        return self.digest.removeprefix("sha256:")


def check_digest(text: str) -> str:
    """Returns `text` if it is `sha256:` and 64 lower-case hexadecimal digits; else raises InvalidReferenceError."""
    if not _DIGEST.match(text):
        raise InvalidReferenceError(f"{text!r} is not a digest: expected sha256: and 64 hexadecimal digits")
    return text


def parse_repository(text: str) -> Repository:
    """Parses `[HOST[:PORT]/]PATH`; raises InvalidReferenceError that names the wrong part."""
    if "@" in text:
        raise _login_error()
    head, slash, rest = text.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost" or head.startswith("[")):
        registry, path = head, rest
    else:
        registry, path = DOCKER_HUB, text
    if registry in {"index.docker.io", "registry-1.docker.io"}:
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    if not _HOST.match(registry) or not _is_port(registry):
        raise InvalidReferenceError(
            f"{text!r}: {registry!r} is not a registry host: expected HOST or HOST:PORT, the port from 1 to 65535"
        )
    if registry == DOCKER_HUB and _ID.match(text):
        raise InvalidReferenceError(f"{text!r} is the ID of an image, not the name of a repository")
    if not _PATH.match(path):
        hint = "repository names are lower case" if path != path.lower() else None
        raise InvalidReferenceError(
            f"{text!r}: {path!r} is not a repository path: expected lower-case letters and digits, "
            "joined by '.', '_', '-' or '/'",
            hint=hint,
        )
    if len(registry) + 1 + len(path) > _LONGEST_NAME:
        raise InvalidReferenceError(f"{text[:40]!r}…: the name is longer than {_LONGEST_NAME} characters")
    return Repository(registry, path)


def _login_error() -> InvalidReferenceError:
    return InvalidReferenceError(
        "expected HOST/PATH without a user name or password; the value is not shown",
        hint="log in with `docker login HOST`, and write only HOST/PATH",
    )


def _is_port(registry: str) -> bool:
    """Returns whether `registry` has no port, or a port from 1 to 65535."""
    _, colon, port = registry.rpartition(":")
    return not colon or not port.isdecimal() or 0 < int(port) <= 65535


def parse_reference(text: str) -> Tag | Digest:
    """Parses `REPOSITORY:TAG`, `REPOSITORY@DIGEST` or `REPOSITORY:TAG@DIGEST`; drops a tag before a digest.

    A name without a tag and a digest gets the tag `latest`.
    """
    if _LOGIN.search(text):
        raise _login_error()
    name, at, digest = text.partition("@")
    last = name.rfind(":")
    tag = ""
    if last > name.rfind("/"):
        name, tag = name[:last], name[last + 1 :]
        if not tag:
            raise InvalidReferenceError(f"{text!r}: expected a tag after the colon")
    repository = parse_repository(name)
    if tag or not at:
        tagged = repository.tag(tag or "latest")
        if not at:
            return tagged
    return repository.digest(digest)


def apply_mirror(repository: Repository, mirrors: Mapping[str, str]) -> Repository:
    """Returns the repository on its host's mirror (`HOST[:PORT][/PREFIX]`); `repository` if the host has no mirror."""
    mirror = mirrors.get(repository.registry)
    return parse_repository(f"{mirror}/{repository.path}") if mirror else repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user name and password for one registry; some registries take a token as the password."""

    username: str
    password: str

    def __post_init__(self) -> None:
        """Keeps the login out of messages."""
        remember_secret(self.password, f"{self.username}:{self.password}")
