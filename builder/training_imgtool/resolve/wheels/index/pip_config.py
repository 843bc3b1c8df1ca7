"""Passes pip's index settings to uv if uv has no settings of its own.

People configure a company's index for pip, in PIP_* variables or a pip.conf
(https://pip.pypa.io/en/stable/topics/configuration/). uv reads neither, so imgtool converts these settings to UV_*
variables for the uv that it runs. imgtool passes credentials in the URLs only through uv's environment.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

_UV_INDEX_SETTINGS = (
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
)
_KEYS = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "trusted-host")
_TRUE = frozenset({"1", "true", "yes", "on"})


def make_uv_environ(environ: Mapping[str, str], *, ca_file: Path | None = None) -> dict[str, str]:
    """Makes the environment for uv: `environ`, plus those of pip's index settings that `environ` does not set for uv.

    `UV_NO_INDEX`, which uv itself does not read, means uv's option --no-index.

    Args:
        environ: the machine's environment.
        ca_file: a PEM file of certificates to trust, which overrides everything in `environ`.
    """
    result = dict(environ)
    for name in ("VIRTUAL_ENV", "UV_PYTHON", "UV_NO_BINARY", "UV_NO_BUILD", "UV_PROJECT"):
        result.pop(name, None)  # these settings concern the running Python, not the image's
    pip = read_pip_settings(environ)
    cert = str(ca_file) if ca_file else result.get("SSL_CERT_FILE") or pip.get("cert")
    if cert:
        result["SSL_CERT_FILE"] = cert
    if result.get("UV_FIND_LINKS"):  # because uv runs in a temporary folder
        result["UV_FIND_LINKS"] = ",".join(map(_make_absolute, result["UV_FIND_LINKS"].split(",")))
    names = [name for name in _UV_INDEX_SETTINGS if environ.get(name)]
    if pip.get("no-index", "").lower() in _TRUE and names in ([], ["UV_FIND_LINKS"]):
        result["UV_NO_INDEX"] = "1"  # pip's no-index applies until a setting of uv names an index
    if names:
        return result
    if pip.get("index-url"):
        result["UV_INDEX_URL"] = pip["index-url"]
    if pip.get("extra-index-url"):
        result["UV_EXTRA_INDEX_URL"] = " ".join(pip["extra-index-url"].split())
        # pip takes the best version of all indexes. By default, uv uses only the first index that has the package.
        result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if pip.get("find-links"):
        result["UV_FIND_LINKS"] = ",".join(map(_make_absolute, pip["find-links"].split()))
    if pip.get("trusted-host"):
        result["UV_INSECURE_HOST"] = " ".join(pip["trusted-host"].split())
    return result


def _make_absolute(place: str) -> str:
    return place if "://" in place or place.startswith("file:") else str(Path(place).absolute())


def read_pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Reads the needed keys as pip does: first pip's files in their order, then its variables."""
    settings: dict[str, str] = {}
    for path in _list_files(environ):
        settings.update(_read(path))
    for key in _KEYS:
        value = environ.get(f"PIP_{key.upper().replace('-', '_')}")
        if value is not None:
            settings[key] = value
    return settings


def _list_files(environ: Mapping[str, str]) -> list[Path]:
    """Lists pip's files; later ones take precedence. If PIP_CONFIG_FILE is /dev/null, pip reads no file."""
    chosen = environ.get("PIP_CONFIG_FILE")
    if chosen == "/dev/null":
        return []
    paths = [Path(part) / "pip/pip.conf" for part in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if part]
    paths.append(Path("/etc/pip.conf"))
    home = environ.get("HOME")
    if home:
        config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        paths += [Path(home) / ".pip/pip.conf", Path(config) / "pip/pip.conf"]
    if environ.get("VIRTUAL_ENV"):
        paths.append(Path(environ["VIRTUAL_ENV"]) / "pip.conf")
    if chosen:
        paths.append(Path(chosen))
    return paths


def _read(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        if not path.is_file() or not parser.read(path, encoding="utf-8"):
            return {}
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}  # pip itself reports the fault in such a file
    settings: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            settings.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    return {key: settings[key] for key in _KEYS if key in settings}
