"""The recipe of an image: all inputs of the image, as one frozen value. The recipe's hash is the image's key.

imgtool's own builder executes the recipe, `model.recipe.printing` prints it as a Dockerfile, and a push attaches it to
the image as JSON. A recipe does not contain the role, so roles with equal recipes share an image.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from training_imgtool.base.context.entries import Entry, Kind
from training_imgtool.base.reference import Digest
from training_imgtool.model.lock import LockedDebian, LockedVariant
from training_imgtool.model.recipe import apt_step, install_step
from training_imgtool.model.recipe.jinja import quote

_VERSION = 2  # of the hashed document; another number changes every key
SYSTEM, RUN, PACKAGES, SETUP, IMAGE = "system", "run", "packages", "setup", "image"
TITLE = "org.opencontainers.image.title"
REVISION = "org.opencontainers.image.revision"
BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"
KEY_LABEL = "dev.imgtool.key"
_FIELDS = {
    SYSTEM: ("debian",),
    RUN: ("run",),
    PACKAGES: ("python", "library", "install", "wheels", "compression", "epoch"),
    SETUP: ("run_after_packages",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Files to copy from the build context into the image: a file to `target`, or a folder's contents into `target`.

    Attributes:
        source: the path relative to the context's root; a folder's path ends with `/`.
        target: the absolute path in the image.
        entries: the entries, each with its path below the target; for a single file, the path is "".
    """

    source: str
    target: str
    entries: tuple[Entry, ...]

    @property
    def is_folder(self) -> bool:
        """Whether the copy is a folder's contents instead of one file."""
        return self.source.endswith("/")

    def list_paths(self) -> Iterator[tuple[str, Entry]]:
        """Yields each entry with its absolute path in the image."""
        for entry in self.entries:
            yield posixpath.join(self.target, entry.path) if entry.path else self.target, entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines that /bin/sh runs in the image, as root and one after the other.

    Attributes:
        lines: the lines; the build ends if one fails.
        env: the variables for the lines, in addition to the base's.
        secrets: the ids of secrets that are mounted at /run/secrets/ID.
    """

    lines: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of an image. Each stage has a key, and is stored as a separate image in a registry.

    Attributes:
        name: SYSTEM, RUN, PACKAGES, SETUP or IMAGE.
        key: the key of the stage and all stages below it, 64 hexadecimal digits.
        engine: why the stage needs buildx; empty if imgtool can make the stage itself.
        text: the instructions that buildx runs on the stage below; empty if imgtool can make the stage itself.
    """

    name: str
    key: str
    engine: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A user's template. buildx builds the whole image from the Dockerfile that the template prints.

    Attributes:
        name: the template's path, relative to the spec.
        text: the printed Dockerfile, without the key.
        context: the files that COPY instructions can use, without the wheels.
        allowed: variables that may look like secrets.
    """

    name: str
    text: str
    context: tuple[Entry, ...]
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All inputs of one image.

    Attributes:
        platform: the platform, such as linux/amd64.
        compression: the compression of the layers that imgtool makes.
        epoch: SOURCE_DATE_EPOCH, the time of the layers' entries in seconds since 1970; 0 for the default time.
        base: the base's digest, and the repository to read it from.
        base_name: the base's canonical REPOSITORY:TAG.
        locked: the wheels, the Debian packages, and the interpreter.
        library_path: LD_LIBRARY_PATH; empty for none.
        libraries: sonames that must open after the installation of the Debian packages.
        run: lines to run on the base and its Debian packages.
        exclude: paths below site-packages to leave out.
        run_after_packages: lines to run on the wheels.
        files: the files of the spec's `files`.
        code: the trainer's code.
        env: the image's variables, without PATH and LD_LIBRARY_PATH.
        labels: the image's labels, without the key's.
        user: the image's user; None for the base's.
        entrypoint: the entry point in exec form.
        template: the user's template; if there is one, it alone decides the image.
    """

    platform: str
    compression: str
    epoch: int
    base: Digest
    base_name: str
    locked: LockedVariant
    library_path: str
    libraries: tuple[str, ...]
    run: Lines
    exclude: tuple[str, ...]
    run_after_packages: Lines
    files: tuple[Copy, ...]
    code: tuple[Copy, ...]
    working_folder: str
    env: Mapping[str, str]
    labels: Mapping[str, str]
    user: str | None
    entrypoint: tuple[str, ...]
    template: Template | None = None

    @property
    def debian(self) -> LockedDebian | None:
        """The Debian packages of the image; None if there are none."""
        return self.locked.debian

    @property
    def apt_script(self) -> str:
        """The argument of the RUN instruction that installs the Debian packages; empty if there are none."""
        if self.debian is None:
            return ""
        return apt_step.install_script(self.locked.variant, self.debian.requested, self.libraries)

    def make_document(self) -> dict[str, Any]:
        """Returns the recipe as plain data. The keys of the image and its stages are hashes of this data."""
        wheels = {wheel.name: f"{wheel.version} {wheel.sha256}" for wheel in self.locked.wheels}
        document: dict[str, Any] = {"platform": self.platform, "base": self.base.digest}
        if self.template is not None:
            lines = self.template.text.split("\n")  # Docker ends a line nowhere else
            document |= {"template": lines, "context": _list_entries(self.template.context), "wheels": wheels}
            return document | {"epoch": self.epoch}
        document |= {
            "library_path": self.library_path,
            "debian": self._describe_debian(),
            "run": _describe_lines(self.run),
            "python": self.locked.variant.python_executable,
            "library": install_step.library_script(self.locked.variant).splitlines(),
            "install": list(install_step.install_commands(self.locked, self.exclude)),
            "wheels": wheels,
            "compression": self.compression,
            "epoch": self.epoch,
            "run_after_packages": _describe_lines(self.run_after_packages),
            "files": _list_copies(self.files),
            "code": _list_copies(self.code),
            "working_folder": self.working_folder,
            "env": dict(self.env),
            "labels": dict(self.labels),
            "user": self.user,
            "entrypoint": list(self.entrypoint),
        }
        return document

    def publish_document(self, allow_secrets: Collection[str]) -> dict[str, Any]:
        """Returns the recipe for the registry. Hashes replace the values of variables that `allow_secrets` names."""
        document = self.make_document()
        hidden = {name.rpartition("env.")[2] for name in allow_secrets if "env." in name}
        for part in (document, document.get("run") or {}, document.get("run_after_packages") or {}):
            env = part.get("env", {})
            part["env"] = env | {name: _hash(env[name]) for name in hidden & env.keys()}
        return document

    def make_stages(self) -> tuple[Stage, ...]:
        """Returns the stages of the image, lowest first; the last one is the image itself."""
        document = self.make_document()
        if self.template is not None:
            why = f"{self.template.name} is a template of your own"
            return (Stage(name=IMAGE, key=_hash(["", document]), engine=why),)
        key = _hash([_VERSION, self.platform, self.base.digest, self.library_path])
        stages = []
        for name, engine, text in self._list_parts():
            fields = [document.pop(field) for field in _FIELDS[name]]
            if name == SYSTEM and not engine:
                fields += [self.compression, self.epoch]
            key = _hash([key, fields])
            stages.append(Stage(name=name, key=key, engine=engine, text=text))
        for names in _FIELDS.values():
            for field_name in names:
                document.pop(field_name, None)
        return (*stages, Stage(name=IMAGE, key=_hash([key, document])))

    def _list_parts(self) -> Iterator[tuple[str, str, str]]:
        """Yields each stage below the image: its name, why it needs buildx, and the instructions for buildx."""
        path = f'ENV LD_LIBRARY_PATH="{self.library_path}"\n' if self.library_path else ""
        if self.debian is not None:
            engine = self.debian.engine
            yield SYSTEM, engine, f"{path}RUN {self.apt_script}\n" if engine else ""
        if self.run.lines:
            yield RUN, "`run` has lines for a shell", path + print_lines(self.run)
        yield PACKAGES, "", ""
        if self.run_after_packages.lines:
            yield SETUP, "`run_after_packages` has lines for a shell", print_lines(self.run_after_packages)

    def _describe_debian(self) -> dict[str, Any] | None:
        if self.debian is None:
            return None
        if self.debian.engine:
            return {"script": self.apt_script}
        packages = {package.name: f"{package.version} {package.sha256}" for package in self.debian.packages}
        return {"packages": packages, "libraries": list(self.libraries)}


def print_lines(lines: Lines) -> str:
    """Formats lines for a shell as RUN instructions of a Dockerfile."""
    text = "# Lines run as root, whoever runs the image.\n# hadolint ignore=DL3002\nUSER 0:0\n"
    if lines.env:
        pairs = " \\\n    ".join(f"{name}={quote(value)}" for name, value in sorted(lines.env.items()))
        text += f"ENV {pairs}\n"
    mounts = "".join(f"--mount=type=secret,id={name} " for name in lines.secrets)
    for line in lines.lines:
        text += f"RUN {mounts}{json.dumps(['/bin/sh', '-ec', line], ensure_ascii=False)}\n"
    return text


def _describe_lines(lines: Lines) -> dict[str, Any] | None:
    if not lines.lines:
        return None
    return {"lines": list(lines.lines), "env": dict(lines.env), "secrets": list(lines.secrets)}


def _list_copies(copies: Iterable[Copy]) -> dict[str, str]:
    listed = {f"{copy.target}/": "folder" for copy in copies if copy.is_folder}
    return listed | {path: _describe_entry(entry) for copy in copies for path, entry in copy.list_paths()}


def _list_entries(entries: Iterable[Entry]) -> dict[str, str]:
    return {entry.path: _describe_entry(entry) for entry in entries}


def _describe_entry(entry: Entry) -> str:
    if entry.kind is Kind.DIRECTORY:
        return "folder"
    if entry.kind is Kind.SYMLINK:
        return f"link {entry.target}"
    return f"{entry.mode:o} {entry.size} {entry.sha256}"


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
