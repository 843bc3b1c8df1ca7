"""Finds files that look like secrets and must not get into an image by accident.

A file looks like a secret by its name, which is the default of a tool (ssh, gcloud, aws, docker, pip, npm, git,
kubectl), or by its content: a text in the format of a credential, or, in settings and code, a value whose name
suggests a secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from training_imgtool.base.context.dockerignore import parse_dockerignore
from training_imgtool.base.errors import InputError
from training_imgtool.base.secret_text import PATTERNS as OF_TEXT
from training_imgtool.base.secret_text import detect_file_secret, detect_table_secret

HEAD = 16 << 20  # bytes of a file that `by_content` needs
_LOOK = 1 << 20  # bytes that tell text from binary data; of binary data, imgtool looks at no more
_BACKUP = r"(?i)(?:\.(?:bak|backup|old|orig|save|copy|[0-9])|~)+\Z"
_SETTINGS = (
    r"(?i).*\.(?:ya?ml|toml|ini|cfg|conf|cnf|config|properties|env|envrc|sh|bash|tf|service)\Z"
    r"|(?:.*/)?(?:dotenv|env|creds?|credentials?|secrets?|passwords?|logins?|keys?|tokens?)(?:\.txt)?\Z"
    r"|(?:.*/)?\.?wandb/settings\Z"
)
_CODE = r"(?i).*\.(?:py|pyi|ipynb|json|xml|r|jl|js|ts|java|scala|go|rb|lua|c|cc|cpp|h|hpp|rs|pl|php|gin)\Z"
_NAMES = r"""(?xis) (?: \.env (?: \. (?!example\Z|sample\Z|template\Z|dist\Z) .* )?
    | id_(?:rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk)
    | .+ \. (?:pem|key|p12|pfx|ppk|jks|keystore|kdbx|ovpn)
    | [._]netrc | \.pypirc | \.npmrc | \.yarnrc | \.git-credentials | \.htpasswd | \.pgpass | \.my\.cnf | \.boto
    | \.(?:bash|zsh|python|mysql|psql|node_repl)_history | \.(?:s3cfg|msmtprc|databrickscfg|vault-token|terraformrc)
    | kaggle\.json | rclone\.conf | \.mylogin\.cnf | .+\.(?:tfstate(?:\.backup)?|tfvars(?:\.json)?|keytab|ovpn|kdb)
    | credentials(?:\.(?:json|ya?ml|toml|ini|csv|xml|txt|tfrc\.json))? | token\.(?:json|pickle|txt) | wallet\.dat
    | \.dockercfg | \.dockerconfigjson | kubeconfig | credentials\.db | access_tokens\.db
    | application_default_credentials\.json | client_secrets?(?:_.*)?\.json | service[-_]?account.*\.json
    | (?:secrets?|passwords?)\.(?:ya?ml|json|toml|env|ini|cfg|conf|properties|txt|csv)
    | \.vault[-_]?pass(?:word)? )\Z"""
_FOLDERS = frozenset({".aws", ".azure", ".gnupg", ".kube", ".ssh", ".kaggle", ".oci", ".password-store"})
_IN_FOLDERS = frozenset(
    {".docker/config.json", ".config/gcloud", ".config/pip/pip.conf", ".pip/pip.conf", ".config/gh", ".config/rclone"}
    | {"huggingface/token", "huggingface/stored_tokens", ".huggingface/token", ".cargo/credentials", ".gem/credentials"}
)

PATTERNS = repr(
    (HEAD, _NAMES, sorted(_FOLDERS), sorted(_IN_FOLDERS), _BACKUP, _SETTINGS, _CODE, OF_TEXT)
)  # all of them


def by_name(path: str) -> bool:
    """Returns whether files with the name of `path` (relative, with slashes) usually contain secrets."""
    path = re.sub(_BACKUP, "", path)
    folders, _, name = path.rpartition("/")
    # No pattern matches a module's name. Compiling takes half a millisecond, and many trainers have only modules.
    if (name.startswith(".") or not name.endswith(".py")) and re.match(_NAMES, name):
        return True
    if "/." not in f"/{path}" and "huggingface/" not in path:  # every folder below has the same start
        return False
    if not _FOLDERS.isdisjoint(folders.split("/")):
        return True
    return any(f"/{path}/".find(f"/{place}/") >= 0 for place in _IN_FOLDERS)


def by_content(path: str, head: bytes) -> bool:
    """Returns whether a file that begins with `head` contains a credential or a private key."""
    is_wide = head[:2] in {b"\xff\xfe", b"\xfe\xff"}
    is_text = is_wide or b"\0" not in head[:_LOOK]
    text = head[: HEAD if is_text else _LOOK].decode("utf-16" if is_wide else "latin-1", errors="replace")
    path = re.sub(_BACKUP, "", path)
    settings, code = (bool(re.match(pattern, path)) for pattern in (_SETTINGS, _CODE))
    if path.lower().endswith((".txt", ".csv", ".tsv")) and is_text and detect_table_secret(text):
        return True
    return detect_file_secret(text, settings=settings, code=code) is not None


def allowed(path: str, allow: Collection[str]) -> bool:
    """Returns whether an allowed path, or a pattern as in `.dockerignore`, matches `path` or a folder above it."""
    if not allow:
        return False
    parents = [path]
    while "/" in parents[-1]:
        parents.append(parents[-1].rpartition("/")[0])
    patterns = parse_dockerignore("\n".join(allow), file="allow_secrets").patterns
    return any(pattern.match(parent) for pattern in patterns for parent in parents)


def refuse(paths: Iterable[str]) -> None:
    """Raises InputError that lists `paths`, unless `paths` is empty."""
    suspects = sorted(paths)
    if suspects:
        what = "1 file looks like a secret" if len(suspects) == 1 else f"{len(suspects)} files look like secrets"
        raise InputError(
            f"{what} in the build context: {', '.join(suspects)}",
            hint="leave them out with .dockerignore, or list them in allow_secrets if the image needs them",
        )
