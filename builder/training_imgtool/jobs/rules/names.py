"""Rules for names, labels, taints, amounts and paths in Kubernetes, and for names in Vertex AI.

Each rule returns a message that explains the fault, or None if there is no fault.

Source: k8s.io/apimachinery pkg/util/validation and kubernetes/kubernetes pkg/apis/core/validation (1.34).
`re` compiles and caches a pattern when a rule first uses it, because most commands use few of the patterns.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping

from training_imgtool.base.resources import data_file

LABEL_LENGTH = 63
MAX_INT32 = 2**31 - 1
_DNS_1035 = r"[a-z](?:[-a-z0-9]*[a-z0-9])?\Z"
_DNS_1123 = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\Z"
_SUBDOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z"
_QUALIFIED = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?\Z"
_ENV_NAME = r"[ -<>-~]+\Z"  # printable ASCII without '='
_PORT_NAME = r"(?=.*[a-z])[a-z0-9](?:-?[a-z0-9])*\Z"
_AMOUNT = r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?\Z"
_FIELD = (
    r"metadata\.(?:name|namespace|uid|labels|annotations|(?:labels|annotations)\['[^']+'\])"
    r"|spec\.(?:nodeName|serviceAccountName)|status\.(?:hostIPs?|podIPs?)|spec\.restartPolicy\Z"
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_EFFECT_WORDS = "NoSchedule, PreferNoSchedule or NoExecute"
_ALL_TAINTS = "is not Exists: a toleration without a key accepts every taint, and needs the operator Exists"


def dns_label(text: str, *, letter_first: bool = False) -> str | None:
    """Explains why `text` is not a DNS label (RFC 1123, or RFC 1035 with `letter_first`)."""
    pattern, words = (_DNS_1035, ", a letter first") if letter_first else (_DNS_1123, "")
    if not re.match(pattern, text):
        return f"{text!r} is not a Kubernetes name: expected a-z, 0-9 and -{words}"
    return f"{text!r} has {len(text)} characters: expected {LABEL_LENGTH} at most" if len(text) > LABEL_LENGTH else None


def subdomain(text: str) -> str | None:
    """Explains why `text` is not a name for most objects: DNS labels joined by dots, 253 characters at most."""
    if not re.match(_SUBDOMAIN, text):
        return f"{text!r} is not a Kubernetes name: expected a-z, 0-9, - and ."
    return f"{text!r} has {len(text)} characters: expected 253 at most" if len(text) > 253 else None


def label_key(text: str) -> str | None:
    """Explains why `text` is not a key of a label, an annotation or a taint: `[PREFIX/]NAME`."""
    prefix, slash, name = text.rpartition("/")
    if (slash and subdomain(prefix)) or not re.match(_QUALIFIED, name):
        return f"{text!r} is not a label's name: expected NAME or PREFIX/NAME of letters, digits, '-', '_' and '.'"
    return f"{name!r} has {len(name)} characters: expected {LABEL_LENGTH} at most" if len(name) > LABEL_LENGTH else None


def label_value(text: str) -> str | None:
    """Explains why `text` is not a label's value."""
    if text and not (re.match(_QUALIFIED, text) and len(text) <= LABEL_LENGTH):
        return f"{text!r} is not a label's value: expected {LABEL_LENGTH} at most of letters, digits, '-', '_' and '.'"
    return None


def labels(pairs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the key and the message for each invalid key or value of labels or of a node selector."""
    for key, value in pairs.items():
        for message in (label_key(key), label_value(value) if isinstance(value, str) else None):
            if message:
                yield key, message


def env_name(text: str) -> str | None:
    """Explains why `text` is not an environment variable's name."""
    if re.match(_ENV_NAME, text):
        return None
    return f"{text!r} is not a variable's name: expected printable ASCII without '='"


def port_name(text: str) -> str | None:
    """Explains why `text` is not a container port's name (an IANA service name)."""
    if re.match(_PORT_NAME, text) and len(text) <= 15:
        return None
    return f"{text!r} is not a port's name: expected 15 at most of a-z, 0-9 and single '-', with a letter"


def toleration(key: str | None, operator: str | None, value: str | None, effect: str | None) -> tuple[str, str] | None:
    """Returns the wrong field of a toleration, and the reason; None for a valid toleration."""
    problems = (
        ("operator", None if operator in {None, "Exists", "Equal"} else f"{operator!r}: expected Exists or Equal"),
        ("effect", None if effect in {None, "", *_EFFECTS} else f"{effect!r}: expected {_EFFECT_WORDS}"),
        ("operator", _ALL_TAINTS if not key and operator != "Exists" else None),
        ("key", label_key(key) if key else None),
        ("value", "does not go with the operator Exists" if value and operator == "Exists" else None),
        ("value", label_value(value) if value else None),
    )
    return next(((field, message) for field, message in problems if message), None)


def int32(value: int) -> str | None:
    """Explains why `value` is not an int32 count."""
    return None if 0 <= value <= MAX_INT32 else f"{value}: expected 0 to {MAX_INT32}"


def amount(text: str) -> str | None:
    """Explains why `text` is not a Kubernetes quantity that is at least zero."""
    return None if re.match(_AMOUNT, text) else f"{text!r} is not a quantity: expected a number such as 4, 500m or 16Gi"


def _annotation_key(text: str) -> str | None:
    message = label_key(text.lower())
    return message.replace("label", "annotation") if message else None


def _field_path(text: str) -> str | None:
    return None if re.match(_FIELD, text) else f"{text!r} is not a field that a Pod can read, such as metadata.name"


def _absolute(text: str) -> str | None:
    return None if text.startswith("/") else f"{text!r}: expected an absolute path"


def _inner_path(text: str) -> str | None:
    wrong = text.startswith("/") or ".." in text.split("/")
    return f"{text!r}: expected a path below the volume, without .." if wrong else None


def _variable(text: str) -> bool:
    """Tells whether the text contains a shell variable, whose value imgtool does not know."""
    return "${" in text or re.search(r"(?<!\$)\$[A-Za-z_]", text) is not None


def _google_value(text: str) -> str | None:
    """Checks a label's value for Google's services: international letters are allowed, capitals are not."""
    good = len(text) <= LABEL_LENGTH and text == text.lower() and all(c in "_-" or c.isalnum() for c in text)
    return None if good else f"{text!r} is not a label's value: expected up to 63 of a-z 0-9 _ -"


def _google_key(text: str) -> str | None:
    if text[:1].isalpha() and not _google_value(text):
        return None
    return f"{text!r} is not a label's name: expected 1 to 63 of a-z 0-9 _ - and a letter first"


def _matching(pattern: str, words: str) -> Callable[[str], str | None]:
    return lambda text: None if _variable(text) or re.fullmatch(pattern, text) else f"{text!r} is not {words}"


FORMATS: Mapping[str, Callable[[str], str | None]] = {
    "dns_label": dns_label,
    "dns_1035": lambda text: dns_label(text, letter_first=True),
    "subdomain": subdomain,
    "label_key": label_key,
    "label_value": label_value,
    "annotation_key": _annotation_key,
    "env_name": env_name,
    "port_name": port_name,
    "amount": amount,
    "field_path": _field_path,
    "absolute": _absolute,
    "inner_path": _inner_path,
    "google_key": _google_key,
    "google_value": _google_value,
    **{name: _matching(**row) for name, row in tomllib.loads(data_file("formats.toml").read_text("utf-8")).items()},
}
"""The formats of texts, by their names in the tables of shapes; `data/formats.toml` has those that are a pattern."""
NUMERIC = {"amount"}  # these formats also accept numbers
