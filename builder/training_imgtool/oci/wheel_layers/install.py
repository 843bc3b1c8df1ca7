"""Lists the paths and contents of the files that pip installs from one wheel.

The rules are those of `_internal/operations/install/wheel.py` in pip 20.3 to 26.3. These versions differ only in the
text of console scripts, which imgtool reads from the wheel of the locked pip (`read_template`). The formats are the
wheel specification (packaging.python.org, "Binary distribution format") and "Recording installed projects". If pip
would fail, or if imgtool cannot predict what pip would do, this module raises NeedsEngineError, and an engine runs the
real pip.
"""

from __future__ import annotations

import ast
import csv
import io
import posixpath
import re
import textwrap
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import HeaderParser, Parser
from hashlib import sha256

from training_imgtool.base.errors import NeedsEngineError, VerificationError
from training_imgtool.base.python_parser import parse_python
from training_imgtool.base.wheel_zip import MOST_READ, Member, WheelFile, read, starts_with

_ENTRY_POINT = re.compile(r"[\w.]+:[\w.]+\s*(?:\[[\w\s,.-]*\])?\Z")
_SCRIPT_NAME = re.compile(r"[\w+-][\w.+-]*\Z")
_VERSIONED = re.compile(r"pip(\d+(\.\d+)?)?\Z|easy_install(-\d+\.\d+)?\Z")
_FILE, _PROGRAM = 0o644, 0o755  # pip under umask 022
_INSTALL = "pip/_internal/operations/install/wheel.py"
_DISTLIB = "pip/_vendor/distlib/scripts.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The virtual environment into which pip installs the wheels.

    Attributes:
        prefix: its absolute path, `/opt/venv`.
        python: the minor version, `3.11`.
        script: pip's console script with `%(module)s`, `%(import_name)s` and `%(func)s`.
    """

    prefix: str
    python: str
    script: str

    @property
    def top(self) -> str:
        """The environment's path in a layer."""
        return self.prefix.strip("/")

    @property
    def site(self) -> str:
        """The path of site-packages in a layer."""
        return f"{self.prefix}/lib/python{self.python}/site-packages"

    @property
    def interpreter_line(self) -> bytes:
        """The first line of each script, which names the environment's Python."""
        return f"#!{self.prefix}/bin/python\n".encode()


@dataclass(frozen=True, slots=True)
class Installed:
    """One file in the environment: an unchanged `member` of a wheel, or `data` if pip writes or changes the file."""

    path: str
    mode: int
    data: bytes = b""
    member: Member | None = None

    @property
    def size(self) -> int:
        """The size of the content in bytes."""
        return self.member.size if self.member else len(self.data)

    @property
    def identity(self) -> tuple[int, int, int]:
        """Mode, size and CRC-32, which are equal for equal files."""
        return self.mode, self.size, self.member.crc if self.member else zlib.crc32(self.data)


def install(wheel: WheelFile, name: str, environment: Environment) -> tuple[Installed, ...]:
    """Lists, sorted by path, every file that pip installs from `wheel`, a wheel of the distribution `name`.

    Raises:
        NeedsEngineError: pip would refuse the wheel, or imgtool cannot predict the result of pip.
        VerificationError: the wheel is damaged.
    """
    members = {member.name: member for member in wheel.members}
    info = _find_info_folder(wheel, members, name)
    console, gui = _read_entry_points(wheel, members, info)
    files: dict[str, Installed] = {}
    recorded: dict[str, str] = {}
    changed: set[str] = set()
    for member in _sort_as_pip(wheel.members):
        path = _choose_destination(wheel, member.name, name, environment)
        if _is_script(member.name):
            if _name_wrapper(path) in console | gui:
                continue
            files[path] = _make_script(wheel, member, path, environment)
            if files[path].member is None:
                changed.add(path)
        else:
            files[path] = Installed(path, _PROGRAM if member.executable else _FILE, member=member)
        recorded[member.name] = path
    generated = _generate_files(info, console, gui, environment)
    files |= {file.path: file for file in generated}
    record = f"{environment.site}/{info}/RECORD"
    text = _read_text(wheel, members, f"{info}/RECORD")
    files[record] = Installed(
        record,
        _FILE,
        _record(text, recorded=recorded, changed=changed, generated=generated, files=files, site=environment.site),
    )
    return tuple(sorted(files.values(), key=lambda file: file.path))


def _find_info_folder(wheel: WheelFile, members: dict[str, Member], name: str) -> str:
    from packaging.utils import canonicalize_name  # late: it takes 8 ms, and few runs need it

    folders = {member.split("/", 1)[0] for member in members}
    infos = sorted(folder for folder in folders if folder.endswith(".dist-info"))
    if len(infos) != 1 or not canonicalize_name(infos[0]).startswith(canonicalize_name(name)):
        raise NeedsEngineError(f"{wheel.path.name}: expected one .dist-info folder of {name}, found {infos}")
    _check_metadata(wheel, _read_text(wheel, members, f"{infos[0]}/METADATA"), name)
    version = Parser().parsestr(_read_text(wheel, members, f"{infos[0]}/WHEEL")).get("Wheel-Version", "").strip()
    if not version.startswith("1."):
        raise NeedsEngineError(f"{wheel.path.name}: Wheel-Version is {version!r}, but imgtool knows only 1.x")
    return infos[0]


def _check_metadata(wheel: WheelFile, text: str, name: str) -> None:
    """Raises VerificationError if a wheel's metadata and its file name differ in name or version."""
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    headers = HeaderParser().parsestr(text)
    own, version = headers.get("Name", ""), headers.get("Version", "").strip()
    expected = wheel.path.name.split("-")[1]
    try:
        is_same = Version(version) == Version(expected.replace("_", "-"))
    except InvalidVersion:
        is_same = version == expected
    if not is_same or canonicalize_name(own) != canonicalize_name(name):
        raise VerificationError(
            f"{wheel.path.name}: its METADATA names {own} {version}",
            hint="pip and uv refuse such a wheel; use another version of the package",
        )


def _read_text(wheel: WheelFile, members: dict[str, Member], name: str) -> str:
    if name not in members:
        raise NeedsEngineError(f"{wheel.path.name}: has no {name}")
    try:
        return read(wheel, members[name]).decode()
    except UnicodeDecodeError as error:
        raise NeedsEngineError(f"{wheel.path.name}: {name} is not UTF-8") from error


def _read_entry_points(
    wheel: WheelFile, members: dict[str, Member], info: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Reads the console scripts and the GUI scripts in entry_points.txt, as `importlib.metadata` does."""
    groups: dict[str, dict[str, str]] = {"console_scripts": {}, "gui_scripts": {}}
    name = f"{info}/entry_points.txt"
    section = ""
    for raw in _read_text(wheel, members, name).splitlines() if name in members else ():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and not line.startswith("#") and section in groups:
            key, equals, value = (part.strip() for part in line.partition("="))
            if not equals or not _SCRIPT_NAME.match(key) or not _ENTRY_POINT.match(value):
                raise NeedsEngineError(
                    f"{wheel.path.name}: the entry point {line[:80]!r} is not NAME = MODULE:FUNCTION"
                )
            groups[section][key] = value
    return groups["console_scripts"], groups["gui_scripts"]


def _sort_as_pip(members: Iterable[Member]) -> list[Member]:
    """Sorts members as pip writes them: the root, then .data, then scripts. A later file replaces an earlier one."""

    def rank(member: Member) -> int:
        if _is_script(member.name):
            return 2
        return 1 if member.name.split("/", 1)[0].endswith(".data") else 0

    return sorted(members, key=rank)


def _is_script(name: str) -> bool:
    parts = name.split("/", 2)
    return len(parts) > 2 and parts[0].endswith(".data") and parts[1] == "scripts"


def _choose_destination(wheel: WheelFile, member: str, name: str, environment: Environment) -> str:
    normal = posixpath.normpath(member)
    if normal.startswith(("/", "..")) or "\\" in normal or "\0" in normal:
        raise NeedsEngineError(f"{wheel.path.name}: {member!r} leads out of the installation folder")
    if not member.split("/", 1)[0].endswith(".data"):
        return f"{environment.site}/{normal}"
    schemes = {
        "purelib": environment.site,
        "platlib": environment.site,
        "scripts": f"{environment.prefix}/bin",
        "data": environment.prefix,
        "headers": f"{environment.prefix}/include/site/python{environment.python}/{name}",
    }
    parts = normal.split("/", 2)
    if len(parts) < 3 or parts[1] not in schemes:
        raise NeedsEngineError(f"{wheel.path.name}: {member!r} is not in a known install scheme")
    return f"{schemes[parts[1]]}/{parts[2]}"


def _name_wrapper(path: str) -> str:
    """Returns the name of the entry point that a generated script with this file name would start."""
    base = posixpath.basename(path)
    for suffix in (".exe", "-script.py", ".pya"):
        if base.lower().endswith(suffix):
            return base[: -len(suffix)]
    return base


def _make_script(wheel: WheelFile, member: Member, path: str, environment: Environment) -> Installed:
    mode = _PROGRAM if member.executable else _FILE
    if not starts_with(wheel, member, b"#!python"):
        return Installed(path, mode, member=member)
    if member.size > MOST_READ:
        raise NeedsEngineError(
            f"{wheel.path.name}: {member.name} has {member.size} bytes, too many to rewrite the file"
        )
    data = read(wheel, member)
    rest = data[data.index(b"\n") + 1 :] if b"\n" in data else b""
    return Installed(path, mode, environment.interpreter_line + rest)


def _generate_files(
    info: str, console: dict[str, str], gui: dict[str, str], environment: Environment
) -> tuple[Installed, ...]:
    scripts = [*_name_versioned_scripts(console, environment.python), *gui.items()]
    folder = f"{environment.site}/{info}"
    return (
        *(_make_entry_script(name, value, environment) for name, value in scripts),
        Installed(f"{folder}/INSTALLER", _FILE, b"pip\n"),
        Installed(f"{folder}/REQUESTED", _FILE),
    )


def _name_versioned_scripts(console: dict[str, str], python: str) -> list[tuple[str, str]]:
    """Returns the console scripts, those of pip and easy_install named for this Python (`get_console_script_specs`)."""
    scripts = []
    if value := console.get("pip"):
        scripts += [("pip", value), (f"pip{python.split('.', maxsplit=1)[0]}", value), (f"pip{python}", value)]
    if value := console.get("easy_install"):
        scripts += [("easy_install", value), (f"easy_install-{python}", value)]
    replaced = tuple(name for name in ("pip", "easy_install") if console.get(name))
    others = [
        item
        for item in console.items()
        if not (replaced and _VERSIONED.match(item[0]) and item[0].startswith(replaced))
    ]
    return scripts + others


def _make_entry_script(name: str, value: str, environment: Environment) -> Installed:
    module, _, attribute = value.partition("[")[0].strip().partition(":")
    text = environment.script % {"module": module, "import_name": attribute.split(".")[0], "func": attribute}
    return Installed(f"{environment.prefix}/bin/{name}", _PROGRAM, environment.interpreter_line + text.encode())


def _record(
    text: str,
    *,
    recorded: dict[str, str],
    changed: set[str],
    generated: tuple[Installed, ...],
    files: dict[str, Installed],
    site: str,
) -> bytes:
    """Formats RECORD as pip does: the wheel's rows with installed paths, and rows for files that pip wrote, sorted."""
    left = dict(recorded)
    rows: list[tuple[str, str, str]] = []
    for row in csv.reader(text.splitlines()):
        if not row:
            raise NeedsEngineError("a wheel's RECORD has an empty line")
        path = left.pop(row[0], None)
        if path in changed:
            rows.append((posixpath.relpath(path, site), *_hash(files[path])))
        else:
            shown = posixpath.relpath(path, site) if path else row[0]
            rows.append((shown, row[1] if len(row) > 1 else "", row[2] if len(row) > 2 else ""))
    rows += [(posixpath.relpath(file.path, site), *_hash(files[file.path])) for file in generated]
    rows += [(posixpath.relpath(path, site), "", "") for path in left.values()]
    out = io.StringIO(newline="")
    csv.writer(out).writerows(sorted(rows))  # with CR LF at line ends, as in pip
    return out.getvalue().encode()


def _hash(file: Installed) -> tuple[str, str]:
    digest = urlsafe_b64encode(sha256(file.data).digest()).decode().rstrip("=")
    return f"sha256={digest}", str(len(file.data))


def read_template(pip: WheelFile) -> str:
    """Reads the template of console scripts in pip's wheel; raises NeedsEngineError if pip has no known template."""
    for path, name in ((_INSTALL, "script_template"), (_DISTLIB, "SCRIPT_TEMPLATE")):
        member = next((member for member in pip.members if member.name == path), None)
        if member and (text := _find_assigned(read(pip, member).decode(), name)) is not None:
            if all(field in text for field in ("%(module)s", "%(import_name)s", "%(func)s")):
                return text
            break
    raise NeedsEngineError(
        f"{pip.path.name}: imgtool does not know the console scripts that this version of pip writes"
    )


def _find_assigned(source: str, name: str) -> str | None:
    """Finds the string that `source` assigns to `name`, directly or through `textwrap.dedent`."""
    for node in ast.walk(parse_python(source)):
        if not isinstance(node, ast.Assign) or [getattr(target, "id", "") for target in node.targets] != [name]:
            continue
        value, dedent = node.value, False
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "textwrap.dedent" and len(value.args) == 1:
            value, dedent = value.args[0], True
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return textwrap.dedent(value.value) if dedent else value.value
    return None
