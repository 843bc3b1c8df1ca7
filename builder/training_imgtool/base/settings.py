"""Reads the machine's settings once, from environment variables; describes where the secrets of a build come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from training_imgtool.base.errors import UsageError
from training_imgtool.base.gates import check_variables
from training_imgtool.base.image_limits import MOST_SECONDS
from training_imgtool.base.user_config import Given, read_user_config

QUOTE = '"'
VARIABLES = (
    *("IMGTOOL_ATTESTATIONS", "IMGTOOL_BUILDER", "IMGTOOL_BUILDER_REGISTRIES", "IMGTOOL_CACHE", "IMGTOOL_CACHE_SIZE"),
    *("IMGTOOL_CA_FILE", "IMGTOOL_DEBIAN_MIRRORS", "IMGTOOL_DEBUG", "IMGTOOL_ENGINE"),
    *("IMGTOOL_INDEX_VARIABLES", "IMGTOOL_INSECURE_REGISTRIES", "IMGTOOL_LOCKED", "IMGTOOL_MIRRORS"),
    *("IMGTOOL_PROGRESS", "IMGTOOL_REGISTRY", "IMGTOOL_TORCH_INDEX"),
)
OTHER_CACHE = "IMGTOOL_CACHE chooses another folder, imgtool prune frees this one"
LARGEST_SECRET = 500_000  # bytes; BuildKit's own limit (`session/secrets`)
_WEB = ("http://", "https://")
TORCH_INDEX = "https://download.pytorch.org/whl"
_EXAMPLE = "http://archive.example.com/debian=http://mirror.example.com/debian"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """Where the value of a secret comes from.

    Attributes:
        id: the ID in `RUN --mount=type=secret,id=…`.
        env: the environment variable with the value, or None.
        file: the file with the value if `env` is None.
    """

    id: str
    env: str | None = None
    file: Path | None = None

    @property
    def place(self) -> str:
        """The source, for messages."""
        return f"the environment variable {self.env}" if self.env else str(self.file)

    @property
    def argument(self) -> str:
        """The value for buildx's option `--secret`, a line of CSV."""
        place = f"env={self.env}" if self.env else f"src={self.file}"
        return f"id={self.id}," + (f'"{place.replace(QUOTE, QUOTE * 2)}"' if set(place) & {",", QUOTE} else place)

    def read(self, environ: Mapping[str, str]) -> str | None:
        """Reads the value; None if the variable is not set, or if the file does not exist or is too large for a secret.

        Returns None for a pipe, too, because only the first reader of a pipe gets the value.
        """
        if self.file is None:
            return environ.get(self.env or "")
        try:
            if not self.file.is_file() or self.file.stat().st_size > LARGEST_SECRET:
                return None
            return self.file.read_bytes().decode(errors="replace")
        except OSError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The machine's settings. A setting does not change an image, so it is not part of a content key."""

    cache: Path
    cache_size: int = 30 * 10**9  # IMGTOOL_CACHE_SIZE, bytes
    state: Path = Path("/nonexistent")  # XDG_STATE_HOME: for facts that imgtool cannot find out again
    registry: str | None = None  # IMGTOOL_REGISTRY
    mirrors: Mapping[str, str]  # IMGTOOL_MIRRORS (docker.io=127.0.0.1:5000,…): hosts to read bases from instead
    debian_mirrors: Mapping[str, str] = field(default_factory=dict)  # IMGTOOL_DEBIAN_MIRRORS: URL=URL,… for archives
    insecure: tuple[str, ...] = ()  # IMGTOOL_INSECURE_REGISTRIES: plain-HTTP hosts HOST[:PORT]; localhost always is one
    ca_file: Path | None = None  # IMGTOOL_CA_FILE, SSL_CERT_FILE, REQUESTS_CA_BUNDLE: certificates in a PEM file
    certificates: tuple[Path, ...] = ()  # folders of Docker and Podman with certificates of single registries
    docker_config: Path  # DOCKER_CONFIG, else ~/.docker
    docker_host: str | None = None  # DOCKER_HOST
    docker_context: str | None = None  # DOCKER_CONTEXT
    builder: str | None = None  # IMGTOOL_BUILDER: a builder of buildx
    builder_registries: Mapping[str, str] = field(default_factory=dict)  # IMGTOOL_BUILDER_REGISTRIES, as the builder
    # reaches them: docker.io=mirror.internal:5000, 127.0.0.1:5000=http://registry.internal:5000
    build_indexes: str = TORCH_INDEX  # IMGTOOL_TORCH_INDEX: the URL of the indexes for builds, URL/cpu, URL/cu126, …
    secrets: tuple[SecretSource, ...] = ()  # --secret
    proxies: Mapping[str, str]  # http, https, no from *_PROXY
    attestations: bool = True  # IMGTOOL_ATTESTATIONS: attach a bill of materials and the provenance to images
    source_date_epoch: int = 0  # SOURCE_DATE_EPOCH, seconds
    environ: Mapping[str, str]  # of the programs that imgtool runs: credential helpers, uv
    config: Mapping[str, Given] = field(default_factory=dict)  # the user's configuration, by variables

    def find_registry(self, option: str | None, of_spec: str | None) -> Given | None:
        """Returns the registry from the option, else the environment, else (if the spec has none) the configuration."""
        if option or self.registry:
            return Given(option or self.registry or "", "--registry" if option else "IMGTOOL_REGISTRY")
        return None if of_spec else self.config.get("IMGTOOL_REGISTRY")


def find_unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Lists variables whose names begin with IMGTOOL_ and that imgtool does not know."""
    return tuple(sorted(name for name in environ if name.startswith("IMGTOOL_") and name not in VARIABLES))


def from_environment(environ: Mapping[str, str]) -> Settings:
    """Reads settings from the environment, and those missing there from the user's configuration; raises UsageError."""
    check_variables(environ)
    config = read_user_config(environ)
    below = {name: given.text for name, given in config.items() if name != "IMGTOOL_REGISTRY"}
    settings = _read({**below, **{name: text for name, text in environ.items() if text}})
    return replace(settings, config=config, environ=_for_programs(environ, below))


def _read(environ: Mapping[str, str]) -> Settings:
    home = Path(environ.get("HOME") or "/nonexistent")
    cache = environ.get("IMGTOOL_CACHE")
    if not cache:
        base = environ.get("XDG_CACHE_HOME")
        cache = f"{base}/imgtool" if base else str(home / ".cache/imgtool")
    ca_file = next(
        (environ[n] for n in ("IMGTOOL_CA_FILE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if environ.get(n)), None
    )
    if ca_file and Path(ca_file).exists() and not Path(ca_file).is_file():
        hint = "correct IMGTOOL_CA_FILE, SSL_CERT_FILE or REQUESTS_CA_BUNDLE"
        raise UsageError(f"{ca_file}: expected a PEM file", hint=hint)
    config = environ.get("DOCKER_CONFIG")
    return Settings(
        cache=Path(cache),
        cache_size=_size(environ.get("IMGTOOL_CACHE_SIZE") or "30G"),
        state=Path(environ.get("XDG_STATE_HOME") or home / ".local/state") / "imgtool",
        registry=environ.get("IMGTOOL_REGISTRY") or None,
        mirrors=_mirrors(environ, "IMGTOOL_MIRRORS"),
        debian_mirrors={
            source.rstrip("/"): target.rstrip("/")
            for source, target in _pairs(environ, "IMGTOOL_DEBIAN_MIRRORS", "URL=URL", _EXAMPLE, _WEB)
        },
        insecure=tuple(
            part.strip() for part in environ.get("IMGTOOL_INSECURE_REGISTRIES", "").split(",") if part.strip()
        ),
        ca_file=Path(ca_file) if ca_file else None,
        certificates=_certificates(Path(environ.get("XDG_CONFIG_HOME") or home / ".config")),
        docker_config=Path(config) if config else home / ".docker",
        docker_host=environ.get("DOCKER_HOST") or None,
        docker_context=environ.get("DOCKER_CONTEXT") or None,
        builder=environ.get("IMGTOOL_BUILDER") or None,
        builder_registries=_hosts(environ, "IMGTOOL_BUILDER_REGISTRIES"),
        build_indexes=_torch_index(environ.get("IMGTOOL_TORCH_INDEX") or TORCH_INDEX),
        proxies=_proxies(environ),
        attestations=_switch("IMGTOOL_ATTESTATIONS", environ),
        source_date_epoch=_epoch(environ.get("SOURCE_DATE_EPOCH")),
        environ=environ,
    )


def _for_programs(environ: Mapping[str, str], below: Mapping[str, str]) -> dict[str, str]:
    """Puts uv's cache below IMGTOOL_CACHE if that is set, because the home folder may be read-only or missing."""
    cache = environ.get("IMGTOOL_CACHE") or below.get("IMGTOOL_CACHE")
    return {**({"UV_CACHE_DIR": f"{cache}/uv"} if cache else {}), **environ}


def _certificates(user: Path) -> tuple[Path, ...]:
    """Returns the folders in which Docker, then Podman, look for certificates, the user's own folders first."""
    parts = ("docker", "containers")
    return tuple(folder / part / "certs.d" for part in parts for folder in (user, Path("/etc")))


def _mirrors(environ: Mapping[str, str], variable: str) -> dict[str, str]:
    return {name: host.removeprefix("http://") for name, host in _hosts(environ, variable).items()}


def _hosts(environ: Mapping[str, str], variable: str) -> dict[str, str]:
    """Returns `HOST=[http://]HOST[/PREFIX],…`; raises UsageError."""
    pairs = _pairs(environ, variable, "HOST=HOST", "docker.io=mirror.example.com:5000", ("",))
    return {source: target.removeprefix("https://").rstrip("/") for source, target in pairs}


def _pairs(
    environ: Mapping[str, str], variable: str, form: str, example: str, begin: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for part in filter(None, map(str.strip, environ.get(variable, "").split(","))):
        source, _, target = part.partition("=")
        if not source or not target or not source.startswith(begin) or not target.startswith(begin):
            raise UsageError(f"{variable}: {part!r} is not {form}", hint=f"for example {example}")
        yield source, target


def _torch_index(url: str) -> str:
    if not url.startswith((*_WEB, "file://")):
        hint = f"the URL of a folder with one index for each build, such as {TORCH_INDEX}"
        raise UsageError(f"IMGTOOL_TORCH_INDEX: {url[:40]!r} is not a URL", hint=hint)
    return url.rstrip("/")


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    names = ("http", "https", "no")
    values = {name: environ.get(f"{name}_proxy") or environ.get(f"{name.upper()}_PROXY") for name in names}
    return {name: value for name, value in values.items() if value}


def _switch(name: str, environ: Mapping[str, str]) -> bool:
    text = environ.get(name) or "on"
    if text.lower() not in {"on", "1", "true", "yes", "off", "0", "false", "no"}:
        raise UsageError(f"{name}: {text[:40]!r} is neither on nor off", hint="set the variable to on or off")
    return text.lower() in {"on", "1", "true", "yes"}


def _size(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([MGT])B?", text)
    if match is None:
        raise UsageError(f"IMGTOOL_CACHE_SIZE: {text[:40]!r} is not a size", hint="for example 30G or 500M")
    return int(match[1]) * {"M": 10**6, "G": 10**9, "T": 10**12}[match[2]]


def _epoch(text: str | None) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 11 and int(text) <= MOST_SECONDS):
        message = f"SOURCE_DATE_EPOCH: {text[:40]!r} is not a number of seconds since 1970"
        raise UsageError(f"{message}, at most {MOST_SECONDS}")
    return int(text)
