"""Detects credentials in text, such as a spec whose values end up in images and job files.

A value counts as a credential if it has the format of a known kind, or if its name, such as `DB_PASSWORD`, suggests
one. The functions never return the value itself. The time for a search grows only linearly with the length of the text.
"""

from __future__ import annotations

import re

# Kind, texts (every match contains one of them), pattern. Sources: the issuers' documentation of their token prefixes.
_SHAPES: tuple[tuple[str, str, str], ...] = (
    ("a URL with a password", "://", r"://[^/\s:@\"']*:(?![$<{%*])[^/\s@\"'{]+@"),
    ("a URL with a token", "://", r"://(?=[A-Za-z_-]{0,99}[0-9])[\w-]{20,}@"),
    ("a URL with a signature", "sig= ignature=", r"(?i)[?&](?:sig|x-(?:amz|goog)-signature)=[a-z0-9%+/]{30,}"),
    (
        "a private key",
        "-----BEGIN ",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?! *(?:BLOCK)?-----(?:[\"'`) ]|\.\.|\\+n<))",
    ),
    ("a private key", "LS0tLS1CRUdJTi", r"LS0tLS1CRUdJTi(?:BQUklW|BSU0Eg|BFQyBQ|BPUEVO|BFTkNS|BQR1Ag)"),  # base64
    ("a private key", "PuTTY-User-Key-File-", r"(?m)^[\w./-]{0,99}PuTTY-User-Key-File-"),
    (
        "Google credentials",
        "service_account authorized_user external_account",
        r"""\\?"type\\?"\s{0,9}:\s{0,9}\\?"(?:service_account|authorized_user|external_account)\\?["]""",
    ),
    ("Google credentials", "InNlcnZpY2VfYWNjb3VudC", r"InNlcnZpY2VfYWNjb3VudC"),  # base64 of "service_account
    ("Google credentials", "c2VydmljZV9hY2NvdW50", r"c2VydmljZV9hY2NvdW50"),
    ("a Google client secret", "GOCSPX-", r"\bGOCSPX-[\w-]{20,}"),
    ("a GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"\bgh[pousr]_[A-Za-z0-9]{16,}"),
    ("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    ("a GitLab token", "glpat- gldt- glrt- glptt-", r"\bgl(?:pat|dt|rt|ptt)-[A-Za-z0-9_-]{16,}"),
    ("an AWS access key", "AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
    ("an AWS access key", "ASIA", r"\bASIA[0-9A-Z]{16}\b"),
    ("an Alibaba Cloud access key", "LTAI", r"\bLTAI[A-Za-z0-9]{16,}\b"),
    ("an Azure storage key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{40,}"),
    ("a Databricks token", "dapi", r"\bdapi[0-9a-f]{32}"),
    ("a DigitalOcean token", "dop_v1_ doo_v1_", r"\bdo[op]_v1_[0-9a-f]{40,}"),
    ("a Docker token", "dckr_", r"\bdckr_[op]at_[\w-]{20,}"),
    ("a Google API key", "AIza", r"\bAIza[0-9A-Za-z_-]{35}"),
    ("a Google access token", "ya29.", r"\bya29\.[0-9A-Za-z_-]{20,}"),
    ("a Slack token", "xox", r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}"),
    ("a Slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/\w+/\w+/\w{16,}"),
    ("a SendGrid key", "SG.", r"\bSG\.[\w-]{16,64}\.[\w-]{16,}"),
    ("a Stripe key", "k_live_ k_test_", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("a Telegram token", ":AA", r"\b[0-9]{8,10}:AA[\w-]{30,}"),
    ("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
    ("a Replicate token", "r8_", r"\br8_[A-Za-z0-9]{30,}"),
    ("a Vault token", "hvs.", r"\bhvs\.[\w-]{20,}"),
    ("an API key", "sk-", r"\bsk-(?=[A-Za-z_-]{0,99}[0-9])[\w-]{20,}"),
    ("an API key", "gsk_", r"\bgsk_[A-Za-z0-9]{30,}"),
    ("an npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}"),
    ("a PyPI token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{50,}"),
    ("a JSON Web Token", "eyJ", r"\beyJ[A-Za-z0-9_-]{10,500}\.eyJ[A-Za-z0-9_-]{10,}\."),
)
# A name ends with one of these words; PASSWORD_FILE and TOKEN_LENGTH name something else.
_SECRETS_NAME = (
    r"(?i)(?:^|[_.-]|^pg)(?:password|passwd|passphrase|pwd|secret|credentials?|"
    r"(?:api|access|account|auth|private|secret|signing|encryption)[_-]?key|token)$"
    r"|(?-i:[a-z0-9](?:Passw(?:or)?d|Passphrase|Secret|Credentials|(?:Api|Access|Auth|Private|Secret)Key|Token)$)"
    r"|(?:admin|db|ftp|mail|mysql|postgres|redis|root|smtp|ssh|user)_?pass$"
)
_TOKENS_NAME = r"(?i)token$"
_TOKENS_VALUE = r"[A-Za-z0-9_\-.=/+]{12,}\Z"  # a model's "[PAD]" and "</s>" are also called tokens
# Values that only name a secret's place (a path, a variable, a resource name, a URL), and switches.
_POINTER = r"(?i)(?:[./~].*|\$.*|projects/.+|[a-z][a-z0-9+.-]*://.*|true|false|yes|no|none|null|[0-9]{1,6})\Z"
_ASSIGNMENT = r"""(?<![\w.-])([\w.-]{1,99})\\?["']?\s{0,9}[:=]\s{0,9}\\?["']?(?=([^\s"',}\]\\]{1,200}))"""
_PAIR = r"""(?<![\w.-])([\w.-]{1,99})=["']?([^\s"',}\]\\]{1,200})"""
_WORD = r"(?P<word>passw(?:or)?d|passphrase|pwd|secret|credentials?|key|token|pass)"
_PLAIN = _WORD + r"""["']?[ \t]{0,9}[:=][ \t]{0,9}["']?(?P<value>[^\s"',}\]]{1,200})"""
_OF_TYPE = r"(?::[ \t]{0,9}\w{1,99}[ \t]{0,9})?"
_QUOTED = (
    _WORD + r"""\\?["']?\]?[ \t]{0,9}""" + _OF_TYPE + r"""[:=][ \t]{0,9}\\?["'](?P<value>[^\s"'\\]{1,200})\\?["']"""
)
# Values in files that are placeholders, or the name of something: a variable, a file, a function.
_PLACEHOLDER = (
    r"(?i)[<{\[(*%:].*|.*(?:example|placeholder|dummy|your|change_?me|insert|redacted|xxx|\.\.\.|\$\{|passw(?:or)?d).*"
    r"|[^A-Za-z0-9]*\Z|[a-z_]+(?:\.[a-z_]+)+\Z|\w+\.(?:pem|key|json|txt|ya?ml|env)\Z|(?-i:[A-Z_]+\Z)|[\w.]+\(.*"
)
_PLACEHOLDER_URL = r"(?:anonymous:[^\s/@]{1,99}|:(?:pass|passwd|password|pwd?|secret|token|\*+|x+))@"
_VALUE = r"""["']?(?![$<{/`"'-])[^\s"'|;&]{4,200}"""
_COMMANDS = tuple(
    pattern.replace("VALUE", _VALUE)
    for pattern in (
        r"""(?i)\bauthorization["']?\s{0,9}[:=]\s{0,9}["']?(?:bearer|basic|token|apikey)\s+VALUE""",
        r"""\b(?:curl|wget|https?)\b.{0,200}?\s(?:-[A-Za-z]{0,9}[uU]|--user|--proxy-user)[\s=]{0,9}["']?[^\s:"'$]{1,99}:VALUE""",
        r"\b(?:sshpass|useradd|usermod|sqlcmd)\b.{0,200}?\s-[pP][\s=]{0,9}VALUE",
        r"\b(?:docker|podman|buildah|skopeo|crane|oras|helm)\b.{0,60}?\blogin\b.{0,200}?\s-p[\s=]{0,9}VALUE",
        r"\b(?:mysql\w*|mariadb\w*|7z|zip|unzip)\b.{0,200}?\s-[pP]\s?VALUE",
        r"\bredis-cli\b.{0,200}?\s-a\s+VALUE",
        r"""(?<![\w.-])[\w.-]{1,99}:VALUE["']?\s{0,9}\|\s{0,9}(?:sudo\s+)?chpasswd""",
        r"""(?<![^\s"'])VALUE["']?\s{0,9}\|\s{0,9}(?:sudo\s+)?passwd\b""",
        r"\bpass:VALUE",
        r"\blogin\s+\S{1,99}\s+password\s+VALUE",
        r"\bwandb\s+login\s+(?:--\S{1,99}\s+)?VALUE",
        r"(?i)\bconfig(?:ure)?\s+(?:set\s+)?[\w./:-]{0,99}(?:secret|token|password|key)[\w.-]{0,30}[\s=]+VALUE",
        r"\bhttp-basic\.\S{1,99}\s+\S{1,99}\s+VALUE",
    )
)
_NAMED_PAIR = (  # of Kubernetes
    r"""["']?name["']?[ \t]{0,9}:[ \t]{0,9}["']?([\w.-]{1,99})["']?,?\s{1,99}"""
    r"""["']?value["']?[ \t]{0,9}:[ \t]{0,9}["']?([^\s"',}]{1,200})"""
)
_COOKIES = r"# (?:Netscape )?HTTP Cookie File"
_CURL = rf"""\b(?:curl|wget)\b[^\n]{{0,200}}?\s(?:-[A-Za-z]{{0,9}}u|--user)[\s=]["']?([^\s:"'$<]{{1,99}}):({_VALUE})"""
_LONGEST_TABLE, _MOST_ROWS = 1 << 14, 20
PATTERNS = repr(
    (
        _NAMED_PAIR,
        _COOKIES,
        _CURL,
        _SHAPES,
        _SECRETS_NAME,
        _TOKENS_VALUE,
        _POINTER,
        _PLAIN,
        _QUOTED,
        _PLACEHOLDER_URL,
        _PLACEHOLDER,
    )
)
_OPTION = r"--?([A-Za-z0-9][A-Za-z0-9_.-]*)\Z"


def detect_secret(text: str) -> str | None:
    """Returns the kind of credential in `text`, such as "a GitHub token", or None."""
    return next(
        (
            kind
            for kind, marks, shape in _SHAPES
            if any(map(text.__contains__, marks.split())) and re.search(shape, text)
        ),
        None,
    )


def mask_shapes(text: str, mask: str) -> str:
    """Returns the text with `mask` in place of each credential in the format of a known kind, and of `NAME=VALUE`."""
    for _, marks, shape in _SHAPES:
        if "private key" not in shape.lower() and any(map(text.__contains__, marks.split())) and "://" not in marks:
            text = re.sub(shape, mask, text)
    for name, value in re.findall(_PAIR, text) if "=" in text else ():
        plain = value.rstrip(":.")
        if not plain.startswith(mask) and _names_secret(name.lstrip("-"), plain):
            text = text.replace(f"{name}={plain}", f"{name}={mask}")
    return text


def detect_named_secret(name: str, value: str) -> str | None:
    """Returns the kind of credential that `value` has, by its format or its `name` (PASSWORD, --api-key), or None."""
    return detect_secret(value) or ("a secret by its name" if _names_secret(name, value) else None)


def _names_secret(name: str, value: str) -> bool:
    if not value or not re.search(_SECRETS_NAME, name) or re.match(_POINTER, value):
        return False
    return not re.search(_TOKENS_NAME, name) or bool(re.match(_TOKENS_VALUE, value))


def detect_line_secret(line: str) -> str | None:
    """Returns the kind of credential in a line of a file, such as `password: …` or `--token=…`, or None."""
    if kind := detect_secret(line):
        return kind
    found = any(_names_secret(name, value) for name, value in re.findall(_ASSIGNMENT, line))
    return "a secret by its name" if found else None


def detect_command_secret(text: str) -> str | None:
    """Returns the kind of credential in a shell's or a Dockerfile's line, or in one argument of a program, or None."""
    words = tuple(re.split(r"""[\s"',\[\]]+""", text))
    kind = detect_line_secret(text) or next(iter(detect_argument_secrets(words).values()), None)
    if not kind and any(re.search(pattern, text) for pattern in _COMMANDS):
        kind = "a password or token of a command"
    return kind


def detect_file_secret(text: str, *, settings: bool, code: bool) -> str | None:
    """Returns the kind of credential in a file, or None.

    Args:
        text: the text of the file.
        settings: whether each line may be `NAME: VALUE`.
        code: whether quotes distinguish values from names.
    """
    if kind := detect_secret(re.sub(_PLACEHOLDER_URL, "@", text) if "://" in text else text):
        return kind
    pairs = re.findall(_NAMED_PAIR, text) if "value" in text and (settings or code) else ()
    if any(_names_secret(name, value) and not _is_placeholder(name, value) for name, value in pairs):
        return "a secret by its name"
    pattern = _PLAIN if settings else _QUOTED if code else r"(?!)"
    for match in re.finditer(pattern, text.lower()):
        value = text[match.start("value") : match.end("value")]
        before = re.search(r"[\w.-]*\Z", text[max(match.start() - 99, 0) : match.start()])
        name = f"{before and before[0]}{text[match.start() : match.end('word')]}"
        if not _is_placeholder(name, value) and _names_secret(name, value):
            return "a secret by its name"
    return None


def detect_table_secret(text: str) -> bool:
    """Returns whether a text contains cookies, `curl -u USER:PASSWORD`, or a short table with a column of secrets."""
    if re.match(_COOKIES, text) and re.search(r"(?m)^(?:#HttpOnly_)?[^#\s][^\t\n]*(?:\t[^\t\n]*){6}$", text):
        return True
    for user, password in re.findall(_CURL, text) if "curl" in text or "wget" in text else ():
        if password != user and not _is_placeholder("password", password):
            return True
    head, *rows = text[:_LONGEST_TABLE].splitlines() or [""]
    for separator in ",;\t" if len(text) < _LONGEST_TABLE else ():
        names = [name.strip(" \"'").replace(" ", "_") for name in head.split(separator)]
        for row in rows[:_MOST_ROWS] if len(names) > 1 else ():
            for name, cell in zip(names, row.split(separator), strict=False):
                value = cell.strip(" \"'")
                if not _is_placeholder(name, value) and _names_secret(name, value):
                    return True
    return False


def _is_placeholder(name: str, value: str) -> bool:
    """Tells whether a value in a file is a placeholder for the real value, or only repeats the value's name."""
    known, folded = name.lower(), re.sub(r"\W", "_", value).lower()
    if folded in known or known in folded or re.search(_SECRETS_NAME, value):
        return True
    return bool(re.match(_PLACEHOLDER, value) or ("token" in known and not re.search("[0-9]", value)))


def detect_argument_secrets(arguments: tuple[str, ...]) -> dict[int, str]:
    """Maps the index of each argument with a credential to the kind; understands `--name=value` and `--name value`."""
    secrets: dict[int, str] = {}
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        before = re.match(_OPTION, arguments[index - 1]) if index else None
        kind = detect_secret(argument)
        if not kind and equals and (match := re.match(_OPTION, option)):
            kind = detect_named_secret(match[1], value)
        if not kind and before and not argument.startswith("-"):
            kind = detect_named_secret(before[1], argument)
        if kind:
            secrets[index] = kind
    return secrets
