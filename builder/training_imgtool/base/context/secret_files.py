"""Files that look like secrets: what must not get into an image by accident.

By name, from the defaults of the tools that write them (ssh, gcloud, aws, docker, pip, npm, git, kubectl), and
by the first bytes for what has no name of its own: service account keys and private keys.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from training_imgtool.base.context.dockerignore import parse_dockerignore
from training_imgtool.base.errors import InputError

HEAD = 4096  # bytes of a file that `by_content` wants to see
_NAMES = r"""(?xis) (?: \.env (?: \. (?!example\Z|sample\Z|template\Z|dist\Z) .* )?
    | id_(?:rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk)
    | .+ \. (?:pem|key|p12|pfx|ppk|jks|keystore|kdbx|ovpn)
    | [._]netrc | \.pypirc | \.npmrc | \.yarnrc | \.git-credentials | \.htpasswd | \.pgpass | \.my\.cnf | \.boto
    | \.dockercfg | \.dockerconfigjson | kubeconfig | credentials\.db | access_tokens\.db
    | application_default_credentials\.json | client_secrets?(?:_.*)?\.json | service[-_]?account.*\.json
    | secrets?\.(?:ya?ml|json|toml|env) | \.vault[-_]?pass(?:word)? )\Z"""
_FOLDERS = frozenset({".aws", ".azure", ".gnupg", ".kube", ".ssh"})
_IN_FOLDERS = frozenset({".docker/config.json", ".config/gcloud", ".config/pip/pip.conf", ".pip/pip.conf"})
_CONTENT = (  # bytes that every match holds, and the pattern
    (b'"type"', rb'"type"\s*:\s*"(?:service_account|authorized_user|external_account)"'),
    (b"-----BEGIN ", rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"),
    (b"PuTTY-User-Key-File-", rb"\A[\w./-]*PuTTY-User-Key-File-"),
)

PATTERNS = repr((HEAD, _NAMES, sorted(_FOLDERS), sorted(_IN_FOLDERS), _CONTENT))  # all that the two functions go by


def by_name(path: str) -> bool:
    """Returns whether the path (relative, slashes) names what usually holds a secret."""
    folders, _, name = path.rpartition("/")
    # No pattern fits a module's name: compiling them takes half a millisecond, and many trainers have nothing else.
    if (name.startswith(".") or not name.endswith(".py")) and re.match(_NAMES, name):
        return True
    if "/." not in f"/{path}":  # which every folder below has
        return False
    if not _FOLDERS.isdisjoint(folders.split("/")):
        return True
    return any(f"/{path}/".find(f"/{place}/") >= 0 for place in _IN_FOLDERS)


def by_content(head: bytes) -> bool:
    """Returns whether a file that begins with `head` is a credentials file or a private key."""
    head = head[:HEAD]
    return any(mark in head and re.search(pattern, head) for mark, pattern in _CONTENT)


def allowed(path: str, allow: Collection[str]) -> bool:
    """Returns whether one of the allowed paths or patterns, as in `.dockerignore`, is `path` or a folder above it."""
    if not allow:
        return False
    parents = [path]
    while "/" in parents[-1]:
        parents.append(parents[-1].rpartition("/")[0])
    patterns = parse_dockerignore("\n".join(allow), file="allow_secrets").patterns
    return any(pattern.match(parent) for pattern in patterns for parent in parents)


def refuse(paths: Iterable[str]) -> None:
    """Raises InputError that lists `paths` when there are any."""
    suspects = sorted(paths)
    if suspects:
        what = "1 file looks like a secret" if len(suspects) == 1 else f"{len(suspects)} files look like secrets"
        raise InputError(
            f"{what} in the build context: {', '.join(suspects)}",
            hint="leave them out with .dockerignore, or list them in allow_secrets if the image needs them",
        )
