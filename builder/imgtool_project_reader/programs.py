"""Finds the programs of a project, ranks the programs by what they do, and follows the imports of each program."""

from __future__ import annotations

import posixpath
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import PurePosixPath

from imgtool_project_reader.frameworks import FRAMEWORKS, TENSORFLOW, is_trainer
from imgtool_project_reader.read import Project
from imgtool_project_reader.source import Imported, Source, read_source
from imgtool_project_reader.statement import Certainty, Fact, Statement
from imgtool_project_reader.tables import find_distribution

_WORDS = {  # patterns of program names, and their weights
    "train": 25, "training": 25, "trainer": 10, "pretrain": 12, "pretraining": 12, "finetune": 12, "finetuning": 12,
    "task": 12, "fit": 10, "main": 8, "__main__": 8, "run": 5, "experiment": 5, "classifier": 3,
}  # fmt: skip
_OTHER_PURPOSE = re.compile(
    r"predict\w*|continue|resume|infer\w*|export\w*|freeze\w*|convert\w*|eval\w*|tests?|testing|demo\w*|download\w*|prepare|preparation|prepro\w*"
    r"|process\w*|data|dataset\w*|plot\w*|visuali[sz]\w*|vocab\w*|tflite|serv\w*|sampl\w*|generat\w*|synthesi\w*|annotation\w*"
    r"|extract\w*|bench\w*|check\w*|inspect|deploy\w*|setup|conf|config\w*|utils?|merge\w*|rename|interp\w*|load\w*|stats?"
    r"|label\w*|video|camera|web|app|api|client|tokeniz\w*|pars\w*|create|build|collect\w*|docs?|conftest|noxfile|score\w*"
    r"|project(?:or|ion)|detect\w*|encode\w*|decode\w*|analy\w*|split\w*|read\w*|write\w*|fetch\w*|import\w*|quanti\w*|weights?|tool\w*|interactive"
    r"|alpha|beta|old|copy|backup|draft|wip|unconditional|conditional|hparams|callbacks?|layers?|loss\w*|metrics?|ablation|debug\w*"
)
_ASIDE = re.compile(  # folders whose programs are not the project's own training
    r"(?i)(?:.*[._-])?tests?|testing|docs?|tools?|benchmarks?|.*legacy.*|old|deprecated|archived?|exports?|exported|graveyard|attic|unused|ba?c?k(?:up)?s?|v1|deploy\w*|ci|data|datasets?|utils?|serving|tf\d.*_legacy"
    r"|contrib|inference\w*|eval\w*|extras?|misc|web.*|app|demos?|research|prepro\w*"
)
_PROGRAMS = re.compile(r"(?i)scripts?|bin|experiments?|runs?|launch\w*")
_EXAMPLES = re.compile(r"(?i)examples?|samples?|tutorials?")
_OF_FRAMEWORKS = frozenset({"keras"}.union(*({one.key, *one.libraries} for one in FRAMEWORKS.values())))
_README = 20  # for a command in the README of the top folder
_LIST = re.compile(r"(?i)(?:requirements?|environment)[\w.-]*|pyproject\.toml|setup\.(?:py|cfg)|Pipfile")
_NO_PROGRAM = re.compile(r"setup\.py|install\.py|conftest\.py|noxfile\.py|test_.*|.*_test\.py|run_tests?\.py")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")  # a folder that `trainer.source` accepts


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program.

    Attributes:
        source: the program's file.
        script: the console script that starts the program, if running the file does not start it.
        target: the function that the script calls, MODULE:FUNCTION.
        home: the folder of the project that defines the script.
        score: the likelihood that this program trains.
        commands: statements about commands that start the program.
        reasons: the parts of the score, as text.
    """

    source: Source
    score: int
    script: str | None = None
    target: str = ""
    home: str = "."
    commands: tuple[Statement, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The program's file, or the notebook."""
        return self.source.path

    @property
    def folder(self) -> str:
        """The folder of the program's file; `.` for the project's folder."""
        return posixpath.dirname(self.path) or "."


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The files and packages that a program reaches through its imports.

    Attributes:
        sources: the project's files, with the program first.
        roots: the folders in which Python must search for absolute imports of these files, in the order of first use.
        foreign: the imports of other packages, each with whether it always runs.
        is_relative: whether the program's file has relative imports.
        tops: the top-level names in absolute imports of the project's files.
    """

    sources: tuple[Source, ...]
    roots: tuple[str, ...]
    foreign: tuple[tuple[Imported, Source, bool], ...]
    is_relative: bool
    tops: frozenset[str]


@dataclass
class Code:
    """The Python files of a project, each parsed once."""

    project: Project
    report: Callable[[str], None]
    _sources: dict[str, Source | None] = field(default_factory=dict)
    _located: dict[tuple[str, str], list[tuple[Imported, tuple[str, tuple[str, ...]] | None]]] = field(
        default_factory=dict
    )

    def source(self, path: str) -> Source | None:
        """Returns what a file contains; None if no Python can parse the file."""
        if path not in self._sources:
            self.report(path)
            self._sources[path] = read_source(self.project.read(path), path)
        return self._sources[path]

    @cached_property
    def _tops(self) -> dict[str, dict[str, None]]:
        """Maps the name of each module and package to the folders that contain it."""
        tops: dict[str, dict[str, None]] = {}
        for path in self.project.files:
            if path.endswith(".py"):
                parts = path.removesuffix(".py").split("/")
                for depth, part in enumerate(parts):
                    tops.setdefault(part, {})["/".join(parts[:depth]) or "."] = None
        return tops

    @cached_property
    def _files(self) -> frozenset[str]:
        return frozenset(self.project.files)

    def _locate(self, imported: Imported, source: Source, start: str) -> tuple[str, tuple[str, ...]] | None:
        """Finds an imported module in the project; returns its root folder and the files to load, or None for others.

        Python searches the program's folder, `start`. For modules in other folders, the image needs a PYTHONPATH.
        """
        if imported.level:
            folder = (
                PurePosixPath(source.path).parents[imported.level - 1] if _depth(source) >= imported.level else None
            )
            return None if folder is None else (str(folder), self._load(str(folder), imported))
        top = imported.module.partition(".")[0]
        here = posixpath.dirname(source.path) or "."
        is_known = top in TENSORFLOW.brings or top == "keras" or find_distribution(imported.module) is not None
        near = [start, *map(str, PurePosixPath(start).parents), *([] if is_known else ["src"])]
        folders = [*dict.fromkeys(folder for folder in near if folder in self._tops.get(top, ()))]
        if (not is_known or self._is_own(imported)) and top not in sys.stdlib_module_names:
            others, above = set(self._tops.get(top, ())) - set(folders), {*map(str, PurePosixPath(here).parents)}
            folders += sorted(others, key=lambda name: (name not in above, name.count("/"), name))
        found = [(folder, self._load(folder, imported)) for folder in folders]
        best = max(found, key=lambda row: 2 if self._has_module(row[0], imported) else bool(row[1]), default=None)
        is_package = (
            best is not None and f"{posixpath.normpath(posixpath.join(best[0], top))}/__init__.py" in self._files
        )
        return best if best is None or best[1] or is_package or not is_known else None

    def _is_own(self, imported: Imported) -> bool:
        """Tells whether the project contains the imported module, although a known package has the same first name."""
        top, _, inner = imported.module.partition(".")
        folders = () if top in TENSORFLOW.brings or top == "keras" or not inner else self._tops.get(top, ())
        return any(self._has_module(folder, imported) for folder in folders)

    def _has_module(self, folder: str, imported: Imported) -> bool:
        """Tells whether `folder` contains the imported module, or a folder of that name with the imported modules."""
        base = posixpath.normpath(posixpath.join(folder, *imported.module.split(".")))
        is_there = f"{base}.py" in self._files or f"{base}/__init__.py" in self._files
        if not imported.names and not is_there:
            return any(file.startswith(f"{base}/") for file in self._files if file.endswith(".py"))
        return is_there or bool(imported.names and all(f"{base}/{name}.py" in self._files for name in imported.names))

    def _load(self, folder: str, imported: Imported) -> tuple[str, ...]:
        """Lists the files that an import loads if Python finds its first name in `folder`."""
        parts = imported.module.split(".") if imported.module else []
        files = []
        for end in range(1, len(parts) + 1):
            base = posixpath.normpath(posixpath.join(folder, *parts[:end]))
            files += [f"{base}/__init__.py", f"{base}.py"] if end == len(parts) else [f"{base}/__init__.py"]
        base = posixpath.normpath(posixpath.join(folder, *parts))
        files += [file for name in imported.names for file in (f"{base}/{name}.py", f"{base}/{name}/__init__.py")]
        return tuple(file for file in files if file in self._files and file != f"{folder}/__init__.py")

    def reach(self, program: Source) -> Reached:
        """Follows the imports of a program through the project's own files."""
        waiting, seen = [program], {program.path: program}
        roots: dict[str, None] = {}
        foreign: list[tuple[Imported, Source, bool]] = []
        start = posixpath.dirname(program.path) or "."
        sure = {program.path}
        tops = set[str]()
        while waiting:
            source = waiting.pop(0)
            for item, found in sorted(self._locate_all(source, start), key=lambda row: not row[0].always):
                always = item.always and source.path in sure and (source is program or not item.in_main)
                if found is None:
                    if not item.level and item.module.partition(".")[0] not in sys.stdlib_module_names:
                        foreign.append((item, source, always))
                    continue
                folder, files = found
                if not item.level:
                    roots |= {folder: None} if always or folder in {".", "src", start} else {}
                    tops |= {item.module.partition(".")[0]} if source is program else set()
                for file in files:
                    sure |= {file} if always else set()
                    if file not in seen and (inner := self.source(file)):
                        seen[file] = inner
                        waiting.insert(0 if always else len(waiting), inner)
        return Reached(
            sources=tuple(seen.values()),
            roots=tuple(roots),
            foreign=tuple(sorted(foreign, key=lambda row: not row[2])),
            is_relative=any(item.level for item in program.imports),
            tops=frozenset(tops),
        )

    def _locate_all(self, source: Source, start: str) -> list[tuple[Imported, tuple[str, tuple[str, ...]] | None]]:
        key = (source.path, start)
        if key not in self._located:
            self._located[key] = [(item, self._locate(item, source, start)) for item in source.imports]
        return self._located[key]

    def rank(self) -> tuple[Program, ...]:
        """Returns the programs, beginning with the program that most likely trains."""
        statements = [item for rows in self.project.statements.values() for item in rows]
        commands = [item for item in statements if item.fact is Fact.COMMAND]
        scripts = _scripts(statements, self._files)
        starting = []
        for path in self.project.files:
            if not path.endswith((".py", ".ipynb")) or _NO_PROGRAM.fullmatch(PurePosixPath(path).name):
                continue
            source = self.source(path)
            script, target, home = scripts.get(path, (None, "", "."))
            if source is None or not (source.starts or script):
                continue
            starting.append((source, self.reach(source), script, target, home))
        imported = {inner.path for source, reached, *_ in starting for inner in reached.sources if inner is not source}
        programs = []
        told_to = {source.path for source, _, script, *_ in starting if _says_train(source, script=script)}
        for source, reached, script, target, home in starting:
            path = source.path
            named = tuple(item for item in commands if _starts_program(item, path, script, self.project))
            by_file = [item for item in named if re.match(r"(?:\w+=.*\s)?python ", item.value.rpartition(" && ")[2])]
            alone = None if source.starts and (by_file or not named) else script
            part = self._find_part(path)
            aside = {f"{part} has packages of its own": -20 if part else 0}
            aside |= {"other programs import it": -12 if path in imported and not named else 0}
            rest = not source.trains and not _says_train(source, script=script) and bool(told_to)
            aside |= {"another program says that it trains": -12 if rest else 0}
            judged = _judge(source, reached, named, alone, aside, told=self._told)
            programs.append(replace(judged, target=target, home=home))
        return tuple(sorted(programs, key=lambda program: (-program.score, program.path)))

    @cached_property
    def _told(self) -> frozenset[str]:
        """The shell scripts that the README of the top folder names."""
        readme = " ".join(self.project.read(path) for path in self.project.files if re.match(r"(?i)readme[^/]*$", path))
        words = {*re.findall(r"[\w./-]+\.sh\b", readme)}
        names = {posixpath.normpath(word) for word in words} | {PurePosixPath(word).name for word in words}
        return frozenset(path for path in self.project.files if path in names)

    def _find_part(self, path: str) -> str | None:
        """Returns the subfolder that contains `path` and a list of packages, if the top folder also has a list."""
        lists = {
            posixpath.dirname(file) or "."
            for file in self.project.statements
            if _LIST.fullmatch(PurePosixPath(file).name)
        }
        above = [str(folder) for folder in PurePosixPath(path).parents]
        return next((folder for folder in above[:-1] if folder in lists), None) if "." in lists else None


def _says_train(source: Source, *, script: str | None) -> bool:
    """Tells whether a program trains, and the names of its file (or script) and folder suggest training."""
    path = PurePosixPath(source.path)
    is_aside = any(map(_ASIDE.fullmatch, path.parts[:-1])) or path.suffix == ".ipynb"
    named = re.search(r"(?i)(?:^|[_-])train(?:ing|er)?(?:[_-]|$)", f"{path.stem}-{script or ''}")
    return bool(named and not is_aside and (source.trains or source.calls_train))


def _depth(source: Source) -> int:
    return len(PurePosixPath(source.path).parents)


def _scripts(statements: list[Statement], files: frozenset[str]) -> dict[str, tuple[str, str, str]]:
    """Maps each file to a console script, its target and its folder; prefers scripts with "train" in the name."""
    scripts: dict[str, tuple[str, str, str]] = {}
    for item in statements:
        if item.fact is Fact.SCRIPT:
            name, _, target = item.value.partition("=")
            called = re.sub(r"\s|\[.*", "", target)
            base, home = called.partition(":")[0].replace(".", "/"), posixpath.dirname(item.file) or "."
            for prefix in ("", "src"):
                for end in (".py", "/__init__.py"):
                    path = posixpath.normpath(posixpath.join(home, prefix, base + end))
                    if path in files and ("train" in name or path not in scripts):
                        scripts[path] = name.strip(), called, home
    return scripts


def _starts_program(command: Statement, path: str, script: str | None, project: Project) -> bool:
    """Tells whether a command starts the program in a file."""
    where, _, text = command.value.rpartition(" && ")
    folder = where.removeprefix("cd ").strip()
    base = posixpath.dirname(command.file) or "."
    words = list_words(command) or text.split()
    if not words:
        return False
    if words[0] == script:
        return True
    if words[0] == "-m" and len(words) > 1:
        dotted = words[1].replace(".", "/")
        names = (
            f"{dotted}.py",
            f"{dotted}/__main__.py",
            f"src/{dotted}.py",
            f"{base}/{dotted}.py",
            f"{folder}/{dotted}.py",
        )
        plain = {posixpath.normpath(name) for name in names}
        if any(map(project.has, plain)):
            return path in plain
        top, _, last = words[1].partition(".")  # the module may have moved within its package
        return bool(last) and top in path.split("/") and PurePosixPath(path).stem == last.rpartition(".")[2]
    return words[0].endswith(".py") and _is_file(words[0], path, base, folder, project)


def _is_file(file: str, path: str, base: str, folder: str, project: Project) -> bool:
    """Tells whether `file`, in a command that runs in `base` and changes to `folder`, is the file at `path`."""
    options = (posixpath.normpath(posixpath.join(*parts, file)) for parts in ((base, folder), (folder,), (base,), ()))
    exact = next((option for option in options if project.has(option)), None)
    if exact or PurePosixPath(path).name != PurePosixPath(file).name:
        return path == exact
    named = PurePosixPath(file).parent.name  # the file may have moved, or the path is from another machine
    same = [other for other in project.files if PurePosixPath(other).name == PurePosixPath(file).name]
    return len(same) == 1 or not named or PurePosixPath(path).parent.name == named


def _judge(
    source: Source,
    reached: Reached,
    commands: tuple[Statement, ...],
    script: str | None,
    aside: dict[str, int],
    *,
    told: frozenset[str],
) -> Program:
    """Scores a program: mostly by what it does, then by commands that name it, then by its name and folder."""
    path = PurePosixPath(source.path)
    stem = path.parent.name if path.stem == "__main__" else path.stem  # `python -m FOLDER` starts it
    words = [*re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])", stem.lower()), *re.split(r"\W+", script or "")]
    words = [word.rstrip("0123456789") for word in words if word] + ["__main__"] * (path.stem == "__main__")
    rows: list[tuple[int, str]] = []
    by_others = any(inner.trains for inner in reached.sources)
    if source.trains:
        rows.append((30, min(source.trains)))
    elif source.calls_train:
        rows.append((30 if by_others else 20, "train"))
    elif by_others:
        rows.append((18, "trains through its imports"))
    tops = {item.module.partition(".")[0] for item, _, _ in reached.foreign}
    by_place = {(_weigh(command, told), command.place) for command in commands}
    none = "uses no framework, as far as its imports say"
    trainer = next(
        (name for item, _, _ in reached.foreign for name in item.names if is_trainer(item.module, name)), None
    )
    if trainer or tops & _OF_FRAMEWORKS:
        rows.append((8, "uses a framework"))
    else:
        rows.append((-8 if max(by_place, default=(0,))[0] >= _README else -25, none))
    if by_place:
        rows.append(max(by_place))
        texts = (f"{command.value.rpartition(' && ')[2]} {command.file}" for command in commands)
        if any(re.search(r"(?i)(?:\b|[=_])train(?:\b|_[\w-]*\.sh$)", text) for text in texts):
            rows.append((8, "a command trains"))
    rows += [(value, word) for word, value in _WORDS.items() if word in words]
    rows += [(-22, word) for word in words if _OTHER_PURPOSE.fullmatch(word)][:1]
    folders = path.parts[:-1]
    names = [re.sub(r"^\d+[._ -]+", "", part) for part in folders]
    rows += [(-25, part) for part in names if _ASIDE.fullmatch(part)][:1]
    rows += [(-15, part) for part in names if _EXAMPLES.fullmatch(part)][:1]
    rows += [(6, part) for part in names if _PROGRAMS.fullmatch(part)][:1]
    rows.append((min(12, len(reached.sources) - 1), "files of the project that it reaches"))
    rows += [(value, reason) for reason, value in aside.items()]
    rows.append((8 if source.has_guard or script else 0, "main guard"))
    rows.append((-3 * len(folders), "depth"))
    rows.append((-18 if path.suffix == ".ipynb" else 0, "notebook"))
    rows.append((4 if source.options else 0, "options"))
    return Program(
        source=source,
        score=sum(value for value, _ in rows),
        script=script,
        commands=commands,
        reasons=tuple(f"{value:+d} {reason}" for value, reason in rows if value),
    )


def _weigh(command: Statement, told: frozenset[str]) -> int:
    """Returns the score that a command adds to the program that it starts, highest for the top folder's README.

    `told` are the shell scripts that the top folder's README names.
    """
    if command.file in told:
        return _README
    if "/" in command.file:
        return 15
    if command.certainty is Certainty.STATED:
        return 25
    return _README if re.match(r"(?i)readme", command.file) else 15


def list_words(command: Statement) -> tuple[str, ...]:
    """Returns the words of a command, without the change of folder and the interpreter."""
    try:
        words = shlex.split(command.value.rpartition(" && ")[2])
    except ValueError:
        return ()
    while words and re.fullmatch(r"(?:\S*/)?python[\d.]*|-[uBOW]\S*|[A-Za-z_]\w*=.*", words[0]):
        words.pop(0)
    return tuple(words)


def list_variables(command: Statement) -> dict[str, str]:
    """Returns the variables that a command sets for the program that it starts."""
    try:
        words = shlex.split(command.value.rpartition(" && ")[2])
    except ValueError:
        return {}
    pairs = (word.partition("=") for word in takewhile(re.compile(r"[A-Za-z_]\w*=").match, words))
    return {name: value for name, _, value in pairs}


def can_stand(path: str) -> bool:
    """Tells whether a path has only characters that a spec allows in folder names."""
    return path == "." or all(map(_PART.fullmatch, path.split("/")))
