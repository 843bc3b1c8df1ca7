"""Lists how registries differ from the distribution specification, one row per kind of registry.

The host's name chooses the row. imgtool uses the facts in a row only to save requests or to give advice. No row tells
whether a registry stores what it accepts, or whether it lists referrers, because imgtool learns that from the
registry's answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from training_imgtool.base.reference import DOCKER_HUB

# docker-registry 2.8 answers 500 for a blob if it was killed while it stored the blob; another upload repairs this.
NO_SUCH_BLOB = frozenset({404, 500})
NO_SUCH_REPOSITORY = frozenset({"NAME_UNKNOWN", "NOT_FOUND", "REPOSITORY_NOT_FOUND"})
PASSING_STATUSES = frozenset({408, 429, 499, 500, 502, 503, 504, 507, 522})
PASSING_CODES = frozenset({"TOOMANYREQUESTS", "UNKNOWN", "UNAVAILABLE", "BLOB_UPLOAD_INVALID"})
ALLOWED_BY_LOGIN = ("BLOB_", "DIGEST_", "MANIFEST_", "NAME_", "SIZE_", "TAG_")  # errors after a login
IMMUTABLE = r"(?i)immutab"  # in refusals by Artifact Registry, ECR and Harbor, whose codes differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One kind of registry. `{host}` in a hint stands for the registry's host.

    Attributes:
        name: the name of the same dialect in the test server.
        hosts: its hosts; a name that begins with a dot or a hyphen covers every host with that ending.
        api_host: the host of the API, if it is another one.
        login_hosts: further names of the host in Docker's config.json.
        helper_host: the host's name for credential helpers.
        asks_first: whether it refuses a login that it has not asked for (GitHub's: 403, Amazon's public one: 400), so
            the first request is anonymous. `Session` finds out about other registries.
        mounts_between_hosts: whether it also mounts blobs from its other hosts.
        application_default: whether it accepts Google's application default credentials.
        login_hint: how to log in.
        denied_hint: the cure for a 403.
        missing_hint: the cure for a missing repository.
    """

    name: str
    hosts: tuple[str, ...] = ()
    api_host: str | None = None
    login_hosts: tuple[str, ...] = ()
    helper_host: str | None = None
    asks_first: bool = False
    mounts_between_hosts: bool = False
    application_default: bool = False
    login_hint: str = "run `docker login {host}`"
    denied_hint: str = "the account needs the rights to pull and to push there, and the repository must exist"
    missing_hint: str = "check the name; some registries want the repository to be created first"

    def covers(self, host: str) -> bool:
        """Returns whether a host belongs to this dialect."""
        return any(host == known or (known[0] in ".-" and host.endswith(known)) for known in self.hosts)


STANDARD = Dialect(name="standard")

DIALECTS = (
    Dialect(
        name="docker-hub",
        hosts=(DOCKER_HUB,),
        api_host="registry-1.docker.io",
        login_hosts=("index.docker.io", "registry-1.docker.io", "registry.docker.io"),
        helper_host="https://index.docker.io/v1/",
        asks_first=True,
    ),
    Dialect(
        name="google",
        hosts=("-docker.pkg.dev", "gcr.io", ".gcr.io"),
        mounts_between_hosts=True,
        application_default=True,
        login_hint="run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS, or run "
        "`gcloud auth configure-docker {host}`",
        denied_hint="the account needs the role Artifact Registry Writer (roles/artifactregistry.writer), and the "
        "repository must exist: create it with `imgtool push --create-repository`",
        missing_hint="create the repository with `imgtool push --create-repository`; if it exists, the account needs "
        "the role Artifact Registry Writer (roles/artifactregistry.writer)",
    ),
    Dialect(
        name="ecr",
        hosts=(".amazonaws.com", ".amazonaws.com.cn"),
        login_hint="run `aws ecr get-login-password | docker login --username AWS --password-stdin {host}`; such a "
        "login lasts 12 hours",
        missing_hint="create the repository with `aws ecr create-repository --repository-name PATH`, where PATH is the "
        "image's name without {host}",
    ),
    Dialect(name="ecr-public", hosts=("public.ecr.aws",), asks_first=True),
    Dialect(
        name="github",
        hosts=("ghcr.io",),
        asks_first=True,
        login_hint="run `docker login {host}` with a personal access token that has the scope write:packages",
    ),
    Dialect(name="azure", hosts=(".azurecr.io",), asks_first=True, login_hint="run `az acr login --name {host}`"),
    Dialect(name="quay", hosts=("quay.io",), asks_first=True),
    Dialect(name="gitlab", hosts=("registry.gitlab.com",), asks_first=True),
)


def find_dialect(host: str, dialects: tuple[Dialect, ...] = DIALECTS) -> Dialect:
    """Returns the dialect of a registry host; returns `STANDARD` for a host that is in no row."""
    return next((dialect for dialect in dialects if dialect.covers(host)), STANDARD)
