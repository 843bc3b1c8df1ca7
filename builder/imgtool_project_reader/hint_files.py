"""Reads files that contain hints but do not list packages: Dockerfiles, READMEs, scripts and notebooks."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from packaging.requirements import Requirement

from imgtool_project_reader.requirement_files import read_conda_row, read_link
from imgtool_project_reader.statement import Certainty, Fact, Statement, parse_requirement
from imgtool_project_reader.tables import find_named, is_distribution, is_known, limit_by_companion

_PATH, _DIGEST = r"(?:[\w.:/-]+/)?", r"(?:@[\w:]+)?"
_TENSORFLOW_IMAGE = re.compile(
    _PATH + r"tensorflow(?:-training)?:(?P<version>\d+\.\d+(?:\.\d+)?)(?:rc\d+)?(?P<gpu>-gpu)?[\w.-]*" + _DIGEST
)
_GOOGLE_IMAGE = re.compile(  # deeplearning-platform-release/tf2-gpu.2-4, vertex-ai/training/tf-cpu.2-14.py310
    _PATH
    + r"tf2?-(?:cpu|(?P<gpu>gpu))\w*\.(?P<major>\d)-(?P<minor>\d+)(?:\.py3(?P<python>\d+))?(?::[\w.-]+)?"
    + _DIGEST
)
_PYTHON_IMAGE = re.compile(_PATH + r"python:(?P<python>3\.\d+)[\w.-]*" + _DIGEST)
_CUDA_IMAGE = re.compile(_PATH + r"(?:nvidia/(?:cuda|pytorch):[\w.-]+|tensorflow:[\w.-]*-gpu[\w.-]*)" + _DIGEST)
_OTHER_STAGE = re.compile(r"(?:^|[_-])(?:tpu|gpu|cuda\w*|rocm|dev\w*|debug|tests?|docs?|serv\w*|build\w*)(?:$|[_-])")
_VARIABLES = re.compile(r"""(?:(?<!\S)[A-Za-z_]\w*=(?:"[^"\n]*"|'[^'\n]*'|[^\s"']*)\s+)+$""")
_APT = re.compile(r"apt(?:-get)?\s+(?:-\S+\s+)*install\s+(?P<words>[^;&|`<()]+)")
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_CD = re.compile(r"(?:^|&&|;)\s*\$?\s*cd\s+(?P<folder>[\w./-]+)")
_PYTHON = re.compile(r"(?:^|[\s`$(/])python[\d.]*\s+(?P<words>[^`;&|>)\n]+)")
_LAUNCH = re.compile(  # what starts a program once for each process, or in its environment, before the program itself
    r"(?:\b(?P<torchrun>torchrun|python[\d.]*\s+-m\s+torch\.distributed\.(?:run|launch))|\b(?:accelerate\s+launch|uv\s+run|deepspeed))"
    r"(?P<options>(?:\s+-[\w-]+(?:[= ](?!-)[^\s;&|]+)?)*?)\s+(?=-m\s|[\w./${}-]+\.py\b)"
)
_INSTALL = re.compile(r"(?:pip[\d.]*|uv pip)\s+install\s+(?P<words>(?:[^`;&|>)\n]|>=|>(?=\d))+)")
_COMMAND = re.compile(
    r"(?: {4}|\t)|\s*(?:[-*+>]|\d+[.)])?\s*[$>!%]?\s*(?:sudo\s+)?(?:[\w./]*python[\d.]*\s+-m\s+)?(?:pip|uv)"
)
_CONDA_INSTALL = re.compile(r"(?:conda|mamba)\s+(?:install|create)\s+(?P<words>(?:[^`;&|>)\n]|>=)+)")
_CONDA_FILE = re.compile(
    r"(?:conda|mamba)\s+(?:env\s+)?(?:create|update)\s[^\n`]*?(?:-f|--file)[\s=]*(?P<file>[\w./-]+\.ya?ml)"
)
_TOOLS = {"poetry install": "pyproject.toml", "uv sync": "pyproject.toml", "pdm install": "pyproject.toml"}
_TOOLS |= {"pipenv install": "Pipfile", "pipenv sync": "Pipfile", "setup.py install": "setup.py"}
_NAMED = re.compile(r"(?i)\b(?:run|execute|launch|start)\w*\b[^.`]{0,40}[`*\s](?P<file>[\w./-]+\.py)\b")
_TRAINS_WITH = re.compile(r"(?i)\b(?:to|for)\s+(?:re)?train(?:ing)?\b.*?[`*\s(](?P<file>[\w./-]+\.py)\b(?!.*\.py\b)")
_NO_SCRIPT = re.compile(
    r"python[\d.]*|pip\d?|uv|conda|mamba|poetry|pipenv|cd|git|docker\S*|export|source|apt|sudo|bash|sh"
)
_VALUES = frozenset(  # options of pip that take a value
    """-r --requirement -c --constraint -i --index-url --extra-index-url -f --find-links -t --target --trusted-host
    --timeout --prefix --root --cache-dir -e --editable -n --name -c --channel -p --python""".split()  # noqa: SIM905
)
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "poetry", "pipenv", "uv", "virtualenv", "conda"})
_VERSION = re.compile(  # such as: TensorFlow >= 1.3, `tensorflow`: 2.0.0-beta1, tensorflow-v2.3, TF 2.4
    r"(?i)\b(?:tensorflow|TF)(?:[- ]?gpu)?(?:\s*\(\s*(?:[a-z]+\s+){1,4}:?\s*|\s+version)?"
    r"[`*\])\s:=v(-]{0,6}(?P<operator>>=|==|<=|~=|>|<|≥)?\s?v?r?"
    r"(?P<version>[0-2]\.\d{1,2}(?:\.\d{1,2}|\.x)?)(?P<plus>\s?\+|[`_*)\]]*\s+(?:or|and)\s+(?:later|above|higher|newer|up))?"
    r"(?![\d%]|\.\d)"
)
_PREVIEW = re.compile(r"(?i)(?:\.0)?[- ]?(?:alpha|beta|rc)\d*\b|(?:\.0)?-?[ab]\d\b")  # means this very release
_REFUSAL = re.compile(  # words before a version that the project does not support
    r"(?i)\b(?:incompatible|not (?:\w+ )?(?:compatible|support\w*|work\w*|run)"
    r"|(?:doesn't|don't|won't|can't|cannot) (?:work|run|support))\b[^.;,]*$"
)
_NUMBER = re.compile(r"[\s*-]*v?\d+\.\d+[\d.+x]*\s*")  # a version alone, below a heading with the program's name
_LINK = re.compile(r"\s*(?:\.\. _|\[[^\]]+\]:)")  # the target of a link in another line
_PIN = re.compile(r"\s*(?:[-*+]\s+)?`?(?P<pin>[A-Za-z][\w.-]*\s?(?:[=~]=|>=?|<=?)\s?\d[\w.]*)`?\s*")
_ROW = re.compile(  # a row in a list of needs, such as: * NumPy (1.19.1)
    r"\s*(?:[-*+|]|\d+\.)\s*(?:[A-Z]\w*\s)?[`*\[]{0,3}(?P<name>[A-Za-z][\w.-]*)[`*\])]{0,3}(?:\([^()]*://[^()]*\))?[\s:|=(v-]{1,6}(?:version\s*)?"
    r"(?P<version>\d+\.\d+(?:\.\d+){0,2})[)`*|\s]*"
)
_BADGE = re.compile(
    r"img\.shields\.io/badge/(?:[\w.]+(?:%2F|/))?(?P<name>[A-Za-z]\w*)-v?(?P<version>\d+\.\d+(?:\.\d+)?)-"
)
_LONGEST_LINE = 2000  # characters: some expressions read a line again from each of its words
_LONGEST = 300  # characters of a heading, or of the line before a list: each line of the list is read with both
_NEEDS = re.compile(r"(?i)require|depend|prerequisite|environment|install|librar|package")
_KERAS_VERSION = re.compile(
    r"(?i)\bkeras(?:\s+version)?[`*\])\s:=v(-]{0,6}(?P<operator>>=|==|~=)?\s?v?(?P<version>[23]\.\d{1,2}(?:\.\d{1,2})?)(?![\d%])"
)
_PYTHON_VERSION = re.compile(
    r"(?i)\bpython[`*\])\s:=v(-]{0,6}(?P<operator>>=|==|<=|~=|>|<|≥)?\s?v?(?P<version>3\.\d{1,2})(?!\d)"
    r"(?:\.\d+)?(?P<more>\s?\+|\s+(?:or|and)\s+(?:later|above|higher|newer|up))?"
)
_STRONG = re.compile(r"(?i)require|depend|tested|prerequisite|version|environment|install|compatib|^\s*[-*+]\s|[=>~]=")


def read_docker(text: str, file: str) -> Iterator[Statement]:
    """Reads a Dockerfile: the images, the installed packages, and the command of the container."""
    values: dict[str, str] = {}
    stages: dict[str, dict[str, tuple[str, int]]] = {}
    starts: dict[str, tuple[str, int]] = {}
    for number, name, value in _list_instructions(text):
        if name == "ARG":
            key, _, default = value.partition("=")
            values.setdefault(key, default.strip("\"'"))
        elif name == "FROM":
            words = [word for word in value.split() if not word.startswith("--")]
            image = re.sub(r"\$\{?(\w+)(?::[-+][^}]*)?\}?", lambda match: values.get(match[1], ""), " ".join(words))
            yield from _read_image(image.partition(" ")[0], file)
            starts = {**stages.get(words[0].lower() if words else "", {})}
            stages[words[2].lower() if len(words) > 2 else str(number)] = starts
        elif name == "RUN":
            command = shlex.join(_read_words(value)) if value.startswith("[") else value
            yield from _read_apt(command, file, number)
            yield from _read_installs(command, file, number, Certainty.HINT)
        elif name == "WORKDIR":
            starts["WORKDIR"] = value, number
        elif name in {"ENTRYPOINT", "CMD"}:
            starts[name] = shlex.join(_read_words(value)) if value.startswith("[") else value, number
    for name in sorted(reversed([*stages]) if stages else (), key=lambda name: bool(_OTHER_STAGE.search(name))):
        rows = [stages[name][key] for key in ("ENTRYPOINT", "CMD") if key in stages[name]]
        folder = stages[name].get("WORKDIR", ("", 0))[0]
        where = f"cd {folder} && " if folder.strip("/") else ""
        if rows:
            text, launcher = drop_launcher(" ".join(row[0] for row in rows))
            at = max(row[1] for row in rows)
            yield Statement(Fact.COMMAND, where + text, file, at)
            yield from [Statement(Fact.LAUNCH, launcher, file, at)] if launcher else ()


def _list_instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yields the line number, the name and the rest of each instruction; joins lines and leaves out comments."""
    start, before = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        start = start or number
        before += line.strip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            name, _, rest = before.strip().partition(" ")
            yield start, name.upper(), rest.strip()
            start, before = 0, ""


def _read_words(text: str) -> list[str]:
    """Reads the words of an instruction in JSON form; returns an empty list for other forms."""
    try:
        return [str(word) for word in json.loads(text)]
    except (ValueError, RecursionError):
        return []


def _read_image(image: str, file: str) -> Iterator[Statement]:
    if match := _TENSORFLOW_IMAGE.fullmatch(image):
        limit = match["version"] if match["version"].count(".") == 2 else f"{match['version']}.*"
        yield Statement(Fact.TENSORFLOW, f"=={limit}", file)
    if match := _GOOGLE_IMAGE.fullmatch(image):
        yield Statement(Fact.TENSORFLOW, f"=={match['major']}.{match['minor']}.*", file)
        if match["python"]:
            yield Statement(Fact.PYTHON, f"==3.{match['python']}.*", file)
        if match["gpu"]:
            yield Statement(Fact.GPU, f"FROM {image}", file)
    if match := _PYTHON_IMAGE.fullmatch(image):
        yield Statement(Fact.PYTHON, f"=={match['python']}.*", file)
    if _CUDA_IMAGE.fullmatch(image):
        yield Statement(Fact.GPU, f"FROM {image}", file)


def _read_apt(text: str, file: str, line: int) -> Iterator[Statement]:
    words = [word.partition("=")[0] for match in _APT.finditer(text) for word in match["words"].split()]
    for word in filter(_DEBIAN.fullmatch, words):
        yield Statement(Fact.SYSTEM, word, file, line, Certainty.HINT)


def read_prose(text: str, file: str) -> Iterator[Statement]:
    """Reads the commands in a README that install packages or train, and the versions that the README names."""
    heading, intro, folder = "", "", ""
    in_block = False
    for number, line in _join(text):
        if line.lstrip().startswith(("```", "~~~")):
            in_block, folder = not in_block, ""
            continue
        if not in_block and (match := re.match(r"\s*#+\s*(.+)", line)):
            heading, intro = match[1][:_LONGEST], ""
        if match := _CD.search(line):
            folder = match["folder"]
        is_training = bool(re.search(r"(?i)train", f"{heading} {line}"))
        sure = Certainty.STATED if is_training else Certainty.HINT
        yield from _read_apt(line.partition("`#")[0], file, number)
        is_sentence = not in_block and not _COMMAND.match(line) and "`" not in line
        yield from _read_installs(line, file, number, Certainty.HINT, is_sentence=is_sentence)
        commands = [*_read_commands(line, file, number, folder)]
        if not (commands or in_block) and (named := _TRAINS_WITH.search(line) or _NAMED.search(line)):
            commands = [Statement(Fact.COMMAND, f"python {named['file']}", file, number)]
        for command in commands:
            yield replace(command, certainty=sure)
        for pin in _read_pins(line, is_list=bool(_NEEDS.search(f"{heading} {intro}")) and not in_block):
            yield Statement(Fact.PACKAGE, pin, file, number, Certainty.HINT)
        if line.strip() and not _ROW.fullmatch(line):
            intro = line[:_LONGEST]  # the start of a list, such as: The environment is
        if (not in_block and not _LINK.match(line)) or "img.shields.io" in line:
            is_strong = bool(_STRONG.search(f"{heading} {line}"))
            said = f"{heading} {line}" if _NUMBER.fullmatch(line) else line
            yield from _read_versions(said, file, number, Certainty.HINT if is_strong else Certainty.GUESS)


def _read_pins(line: str, *, is_list: bool) -> Iterator[str]:
    """Yields the requirements in a line of prose: a pin, an item in a list of required packages, or a badge."""
    if (pin := _PIN.fullmatch(line)) and is_distribution(pin["pin"]):
        yield pin["pin"]
    for row in (_ROW.fullmatch(line) if is_list else None, *_BADGE.finditer(line)):
        if row and (name := find_named(row["name"])):
            is_whole = row["version"].count(".") >= 2 and name.lower() == row["name"].lower()
            yield f"{name}=={row['version']}{'' if is_whole else '.*'}"


def _join(text: str) -> Iterator[tuple[int, str]]:
    """Yields the start of each line with its number; joins a line that ends with a backslash with the next line."""
    number, start, before = 0, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        if re.search(r"\s\\\s*$", line):
            before += line.rstrip()[:-1]
            continue
        yield start, (f"{before} {line.strip()}" if before else line)[:_LONGEST_LINE]
        start, before = 0, ""
    if before:
        yield start, before[:_LONGEST_LINE]


def _read_versions(line: str, file: str, number: int, certainty: Certainty) -> Iterator[Statement]:
    plain = (
        re.sub(r"\(https?://(?!img\.shields\.io)[^)]*\)|https?://(?!img\.shields\.io)\S+", "", line)
        .replace("%3E", ">")
        .replace("%3D", "=")
    )
    for match in _VERSION.finditer(plain):
        if limit := _limit_tensorflow(match, plain):
            yield Statement(Fact.TENSORFLOW, limit, file, number, certainty)
    for match in _KERAS_VERSION.finditer(plain):
        if limit := _limit_by_keras(f"{match['operator'] or '=='}{match['version']}"):
            yield Statement(Fact.TENSORFLOW, limit, file, number, Certainty.GUESS)
    for match in _PYTHON_VERSION.finditer(plain):
        is_open = match["more"] or match["operator"] in {">=", ">", "≥"}
        limit = f">={match['version']}" if is_open else f"=={match['version']}.*"
        if match["operator"] not in {"<", "<="}:
            yield Statement(Fact.PYTHON, limit, file, number, Certainty.GUESS)


@lru_cache(maxsize=1024)
def _limit_by_keras(specifier: str) -> str | None:
    return limit_by_companion(Requirement(f"keras{specifier}"))


def _limit_tensorflow(match: re.Match[str], line: str) -> str | None:
    """Returns the version limit that the text expresses; None if the line says that the release does not work."""
    version = match["version"].removesuffix(".x")
    if _REFUSAL.search(line, 0, match.start()):
        return "<2" if version in {"2", "2.0"} else None
    if match["plus"] or match["operator"] in {">=", ">", "≥"}:
        return f">={version}"
    if match["operator"] in {"<", "<="}:
        return f"{match['operator']}{version}"
    if version in {"2.0", "1.0"}:  # people write these for the majors
        is_exact = match["operator"] == "==" or _PREVIEW.match(line, match.end("version"))
        return f"=={version}.*" if is_exact else f"=={version[0]}.*"
    return f"=={version}" + (".*" if version.count(".") < 2 else "")


def drop_launcher(text: str) -> tuple[str, str]:
    """Replaces torchrun and its like in a command by `python`; returns the command, and torchrun with its options.

    Source: https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    match = _LAUNCH.search(text, 0, _LONGEST_LINE)
    if match is None:
        return text, ""
    rest = re.sub(r"^(-m\s+\S+|\S+)\s+--(?=\s)", r"\1", text[match.end() :])  # torchrun itself takes this `--`
    launcher = f"torchrun {' '.join(match['options'].split())}" if match["torchrun"] else ""
    return f"{text[: match.start()]}python {rest}", launcher


def _read_commands(line: str, file: str, number: int, folder: str) -> Iterator[Statement]:
    where = f"cd {folder} && " if folder else ""
    line, launcher = drop_launcher(line)
    if launcher:
        yield Statement(Fact.LAUNCH, launcher, file, number)
    for match in _PYTHON.finditer(f" {line}"):
        words = match["words"].strip().rstrip("\\").strip()
        if re.match(r"(?:-[uBOW]+\s+)*(?:-m\s+[A-Za-z_][\w.]*|[\w./{}$-]+\.py)\b", words):
            before = _VARIABLES.search(line, 0, max(0, match.start()))
            yield Statement(Fact.COMMAND, f"{where}{before[0] if before else ''}python {words}", file, number)
    script = re.match(r"\s*(?:\$\s+|`)?(?P<words>(?P<first>[a-z][\w]*(?:-[\w]+)*)\s+[\w./<\[-].*)$", line)
    if script and not _NO_SCRIPT.fullmatch(script["first"]):
        yield Statement(Fact.COMMAND, f"{where}{script['words'].rstrip(chr(92)).strip()}", file, number)


def read_shell(text: str, file: str) -> Iterator[Statement]:
    """Reads the programs that a shell script or a Makefile starts. The reader judges the programs only by name."""
    folder = ""
    is_installer = re.search(r"(?i)install|setup|requirements|bootstrap|(?:^|[/_-])env", file)
    for number, line in _join(text):
        if not line.lstrip().startswith("#"):
            yield from _read_installs(line, file, number, Certainty.HINT) if is_installer else ()
            folder = match["folder"] if (match := _CD.search(line)) else folder
            for command in _read_commands(line, file, number, folder):
                if re.match(r"(?:\w+=.*\s)?python |torchrun", command.value.rpartition("&& ")[2]):
                    yield replace(command, certainty=Certainty.HINT)


def _read_installs(
    text: str, file: str, line: int, certainty: Certainty, *, is_sentence: bool = False
) -> Iterator[Statement]:
    """Reads commands that install packages; with `is_sentence`, other words may follow the packages."""
    for tool, name in _TOOLS.items():
        if tool in text:
            yield Statement(Fact.INSTALL, name, file, line, certainty)
    if named := _CONDA_FILE.search(text):
        yield Statement(Fact.INSTALL, named["file"], file, line, certainty)
    elif packages := _CONDA_INSTALL.search(text):
        for word in _arguments(packages["words"]):
            yield from (replace(found, certainty=certainty) for found in read_conda_row(word, file, line))
    for match in _INSTALL.finditer(text):
        yield from (
            Statement(fact, value, file, line, certainty)
            for fact, value in (*_find_files(match["words"]), *_find_packages(match["words"], is_sentence=is_sentence))
        )


def _find_files(text: str) -> Iterator[tuple[Fact, str]]:
    """Yields the requirements files and the folders that a pip command names."""
    words = _words(text)
    for option, value in pairwise([*words, ""]):
        if option in {"-r", "--requirement"} and re.fullmatch(r"[\w./-]+", value):
            yield Fact.INSTALL, value.removeprefix("./")
        elif option in {"-e", "--editable"} and re.fullmatch(r"[\w./-]+(?:\[[\w,-]*\])?", value):
            yield Fact.INSTALL, value


def _find_packages(text: str, *, is_sentence: bool) -> Iterator[tuple[Fact, str]]:
    for word in _words(text):
        link = word.partition("git+")
        if link[0] in {"", "-e=", "--editable="} and (item := read_link("git+" + link[2]) if link[1] else None):
            yield Fact.PACKAGE, str(item)
    for word in _arguments(text):
        if word.startswith("."):
            yield Fact.INSTALL, word
        elif is_sentence and not is_known(re.split(r"[\[=<>~]", word)[0]):
            return
        elif (item := parse_requirement(word)) and item.name not in _INSTALLERS and item.url is None:
            yield Fact.PACKAGE, str(item)


def _words(text: str) -> list[str]:
    text = re.sub(r"\s#.*", "", text)  # a comment, but not the `#egg=` of a link
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _arguments(text: str) -> Iterator[str]:
    """Yields the words of an installer's command, without options and option values."""
    before = ""
    for word in _words(text):
        if not word.startswith("-") and before not in _VALUES:
            yield word.rstrip(".,:") if word != "." else word
        before = word


def read_python_version(text: str, file: str) -> Iterator[Statement]:
    """Reads a .python-version, or Heroku's runtime.txt."""
    if match := re.search(r"(?m)^(?:python-)?(?P<minor>3\.\d+)", text):
        yield Statement(Fact.PYTHON, f"=={match['minor']}.*", file, text.count("\n", 0, match.start()) + 1)


def read_cells(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number and the text of each code cell of a notebook; raises ValueError for other files."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("the values are nested too deep") from None
    cells = document.get("cells") or [cell for sheet in document.get("worksheets", ()) for cell in sheet["cells"]]
    for number, cell in enumerate(cells, 1):
        if cell.get("cell_type") == "code":
            source = cell.get("source", cell.get("input", ""))
            yield number, source if isinstance(source, str) else "".join(source)
