"""Names of images as types: a repository, a tag in it, a digest in it.

The grammar is that of the OCI distribution specification 1.1 ("Pulling manifests") and of
distribution/reference: a registry host with an optional port, a path of lower-case components,
then `:TAG` (128 characters at most) or `@sha256:` and 64 hexadecimal digits. A name without a host
means Docker Hub, as everywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from training_imgtool.core.errors import InputError

DOCKER_HUB = "docker.io"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*\Z")
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?\Z"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_LONGEST_NAME = 255


class InvalidReferenceError(InputError):
    """A name that no registry would accept."""


@dataclass(frozen=True, slots=True, order=True)
class Repository:
    """A registry host and a path in it, such as `us-docker.pkg.dev` and `project/training/mnist`."""

    registry: str
    path: str

    def __str__(self) -> str:
        return f"{self.registry}/{self.path}"

    def tag(self, name: str) -> Tag:
        """The tag `name` here; raises InvalidReferenceError when it is not one."""
        if not _TAG.match(name):
            raise InvalidReferenceError(
                f"{name!r} is not a tag: expected 1 to 128 letters, digits, '.', '_' or '-', the first not '.' or '-'"
            )
        return Tag(self, name)

    def digest(self, digest: str) -> Digest:
        """The manifest `digest` here; raises InvalidReferenceError when it is not one."""
        return Digest(self, check_digest(digest))

    def child(self, name: str) -> Repository:
        """The repository `name` below this one."""
        return parse_repository(f"{self}/{name}")


@dataclass(frozen=True, slots=True, order=True)
class Tag:
    """A name that its owner can move. A job file never takes one."""

    repository: Repository
    name: str

    def __str__(self) -> str:
        return f"{self.repository}:{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A manifest by the hash of its bytes: the only way an image is named for good."""

    repository: Repository
    digest: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}"

    @property
    def hex(self) -> str:
        """The 64 hexadecimal digits."""
        return self.digest.removeprefix("sha256:")


def check_digest(text: str) -> str:
    """`text` when it is `sha256:` and 64 lower-case hexadecimal digits; raises InvalidReferenceError otherwise."""
    if not _DIGEST.match(text):
        raise InvalidReferenceError(f"{text!r} is not a digest: expected sha256: and 64 hexadecimal digits")
    return text


def parse_repository(text: str) -> Repository:
    """Parses `[HOST[:PORT]/]PATH`; raises InvalidReferenceError that says which part is wrong."""
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
    if not _PATH.match(path):
        hint = "repository names are lower case" if path != path.lower() else None
        raise InvalidReferenceError(
            f"{text!r}: {path!r} is not a repository path: expected lower-case letters and digits, "
            "joined by '.', '_', '-' or '/'",
            hint=hint,
        )
    if len(registry) + 1 + len(path) > _LONGEST_NAME:
        raise InvalidReferenceError(f"{text[:40]!r}…: longer than {_LONGEST_NAME} characters")
    return Repository(registry, path)


def _is_port(registry: str) -> bool:
    """Whether the host's port, where it has one, can be connected to."""
    _, colon, port = registry.rpartition(":")
    return not colon or not port.isdecimal() or 0 < int(port) <= 65535


def parse_reference(text: str) -> Tag | Digest:
    """Parses `REPOSITORY:TAG`, `REPOSITORY@DIGEST` or `REPOSITORY:TAG@DIGEST` (the digest wins).

    Without either the tag is `latest`, as in every client.
    """
    name, at, digest = text.partition("@")
    last = name.rfind(":")
    tag = ""
    if last > name.rfind("/"):
        name, tag = name[:last], name[last + 1 :]
    repository = parse_repository(name)
    if tag or not at:
        tagged = repository.tag(tag or "latest")
        if not at:
            return tagged
    return repository.digest(digest)


def apply_mirror(repository: Repository, mirrors: Mapping[str, str]) -> Repository:
    """Where `repository` is read from: its host's mirror (`HOST[:PORT][/PREFIX]`), or itself."""
    mirror = mirrors.get(repository.registry)
    return parse_repository(f"{mirror}/{repository.path}") if mirror else repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user name and password for one registry, or a token in place of both."""

    username: str
    password: str
