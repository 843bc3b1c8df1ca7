"""Reads the imports, options and training calls of a program: one Python file, or the cells of a notebook."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

from imgtool_project_reader.hint_files import read_cells
from imgtool_project_reader.python2 import find_module_of_2, parse_python_2
from imgtool_project_reader.python_facts import find_pythons
from imgtool_project_reader.tables import load_tables
from imgtool_project_reader.usage import list_usage

TRAINS = frozenset(
    """fit fit_generator learn train_and_evaluate train_on_batch minimize apply_gradients GradientTape
    MonitoredTrainingSession value_and_grad apply_updates backward LocalDagRunner BeamDagRunner""".split()  # noqa: SIM905
)
STRATEGIES = frozenset({"MultiWorkerMirroredStrategy", "ParameterServerStrategy"})
_OPTIMIZERS = frozenset({"SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam"})
_RUNS = frozenset({"run", "Popen", "call", "check_call", "check_output", "system", "popen"})
_STARTS = re.compile(r"(?i)main|run|fire|cli|app|(?:.*_)?(?:train|training|fit)(?:_.*|er)?")
_OLD_LAYER = re.compile(r"(?:Conv|Deconv|AtrousConv|SeparableConv|LocallyConnected|AveragePool|MaxPool).*")
_OPTION = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_-]*")
_ARGUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_OF_TENSORFLOW = re.compile(r"tensorflow\.[\w.]+")
_MARKS = frozenset({"mark_flag_as_required", "mark_flags_as_required"})
_PATH = re.compile(r"(?:\.\./)*\.{0,2}/?[\w-][\w./-]*")


@dataclass(frozen=True, slots=True)
class Option:
    """An option, such as `--epochs`, or an argument without dashes."""

    name: str
    required: bool


@dataclass(frozen=True, slots=True)
class Imported:
    """An import: the module's name without leading dots (`level` is their number), the imported names, the line.

    `always` is False for an import in a function, a condition or a `try`; `in_main` is True under a main guard.
    """

    module: str
    level: int
    names: tuple[str, ...]
    line: int
    always: bool
    in_main: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file.

    Attributes:
        starts: whether the file runs a program, under a main guard or as Python loads it.
        has_guard: whether the file has a main guard.
        trains: the calls in the file that train.
        calls_train: whether the file calls a function named `train`, which may train.
        strategies: the strategies of tf.distribute that the file names.
        first: the number of used names that only TensorFlow 1 has, and the line of the first use.
        second: the number of used names that are new in TensorFlow 2.
        limits: version limits of TensorFlow that follow from other names in the file, with lines.
        old_keras: the first line with a call in the style of Keras before TensorFlow 2; 0 for none.
        used: the names that the file uses from other packages, in the notation of `usage`, with lines.
        programs: the other programs that the file starts.
        pythons: specifier sets of Python that the file needs, with lines.
        paths: texts in the file that look like relative paths.
        python2_line: the line at which Python 3 rejects a file of Python 2, or the first import that Python 3 lacks; 0
            for none.
    """

    path: str
    imports: tuple[Imported, ...]
    starts: bool
    has_guard: bool
    trains: frozenset[str]
    calls_train: bool
    strategies: frozenset[str]
    first: tuple[int, int]
    second: int
    limits: tuple[tuple[str, int], ...]
    old_keras: int
    used: tuple[tuple[str, int], ...]
    options: tuple[Option, ...]
    programs: frozenset[str]
    pythons: tuple[tuple[str, int], ...]
    paths: frozenset[str]
    python2_line: int = 0


@lru_cache(4096)  # `init` makes several proposals for the same files
def read_source(text: str, path: str) -> Source | None:
    """Reads a file; returns None if no Python can parse it."""
    if path.endswith(".ipynb"):
        try:
            text = "".join(script for script in write_cells(text))
        except (ValueError, AttributeError, TypeError, KeyError):
            return None
    tree, python2_line = _parse(text)
    if tree is None:
        return None
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    has_guard = any(map(_is_main_guard, tree.body))
    used = list_usage(tree)
    first, second, limits = _weigh_api(nodes, used)
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return Source(
        path=path,
        imports=tuple(_list_imports(tree)),
        starts=has_guard or path.endswith(".ipynb") or _starts(tree),
        has_guard=has_guard,
        trains=frozenset(name for call in calls if (name := _name(call)) in TRAINS),
        calls_train=any(_name(call) == "train" for call in calls),
        strategies=frozenset(named & STRATEGIES),
        first=first,
        second=second,
        limits=limits,
        old_keras=next((call.lineno for call in calls if _is_old_keras(call)), 0),
        used=tuple(used.items()),
        options=read_options(calls),
        programs=frozenset(program for call in calls if (program := _find_program(call))),
        pythons=find_pythons(tree),
        paths=frozenset(_list_paths(nodes)),
        python2_line=python2_line or find_module_of_2(tree),
    )


def write_cells(text: str) -> Iterator[str]:
    """Yields the lines of a program made from a notebook's code cells; turns IPython commands into comments.

    Raises ValueError, AttributeError, TypeError or KeyError for a file that is not a notebook.
    """
    futures = [line for _, cell in read_cells(text) for line in cell.splitlines() if line.startswith("from __future__")]
    yield from (f"{line}\n" for line in dict.fromkeys(futures))
    yield "try:\n    from IPython.display import display\nexcept ImportError:\n    display = print\n"
    for number, source in read_cells(text):
        yield f"\n# Cell {number}\n"
        if re.match(r"\s*%%(?!time|capture|prun|timeit)\w+", source):
            yield "".join(f"# {line}\n" for line in source.splitlines())
            continue
        for line in source.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            is_command = re.match(
                r"\s*(?:[!?]|%%?\w|from __future__|\w+\s*=\s*[!%]|get_ipython\()|.*[^\s#'\"]\?\s*$", line
            )
            yield f"{indent}pass  # {line.strip()}\n" if is_command else f"{line}\n"


def _parse(text: str) -> tuple[ast.Module | None, int]:
    """Returns a file's syntax tree (or None), and the first line that only Python 2 can parse (or 0)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text), 0
        except SyntaxError as error:
            first = error.lineno or 1
        except (ValueError, RecursionError, MemoryError):
            return None, 0
        try:
            return ast.parse(re.sub(r"(?m)^([ \t]*)[!%][^\n]*", r"\g<1>pass", text)), 0  # of a notebook
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return parse_python_2(text), first


def _is_main_guard(node: ast.stmt) -> TypeGuard[ast.If]:
    texts = {"__name__ == '__main__'", "'__main__' == __name__"}
    return isinstance(node, ast.If) and ast.unparse(node.test) in texts


def _starts(tree: ast.Module) -> bool:
    """Returns whether a file starts to train or to run a program while Python loads the file."""
    quiet = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    body = [inner for node in tree.body for inner in (node.body if isinstance(node, ast.Try) else [node])]
    calls = (
        call for node in body if not isinstance(node, quiet) for call in ast.walk(node) if isinstance(call, ast.Call)
    )
    training = _list_training(tree)
    marks = (mark for node in tree.body if isinstance(node, ast.FunctionDef) for mark in node.decorator_list)
    if any(isinstance(mark, ast.Attribute) and mark.attr == "automain" for mark in marks):
        return True  # Sacred calls the function when the file runs
    return any(isinstance(node, ast.For | ast.While | ast.With) for node in body) or any(
        _name(call) in TRAINS | training or _STARTS.fullmatch(_name(call)) for call in calls
    )


def _list_training(tree: ast.Module) -> frozenset[str]:
    """Returns the functions of the file that train, directly or through other functions of the file."""
    calls = {
        node.name: {_name(inner) for inner in ast.walk(node) if isinstance(inner, ast.Call)}
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    training = frozenset[str]()
    while more := {name for name, called in calls.items() if called & (TRAINS | training)} - training:
        training |= more
    return training


def _list_imports(tree: ast.Module) -> Iterator[Imported]:
    main = {id(inner) for node in tree.body if _is_main_guard(node) for inner in node.body}
    always = {id(node) for node in tree.body} | main
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Imported(alias.name, 0, (), node.lineno, id(node) in always, id(node) in main)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Imported(node.module or "", node.level, names, node.lineno, id(node) in always, id(node) in main)


def _weigh_api(nodes: list[ast.AST], every: dict[str, int]) -> tuple[tuple[int, int], int, tuple[tuple[str, int], ...]]:
    """Counts the names from `tensorflow` that only version 1 or only version 2 has; lists limits from other names."""
    table = load_tables()["tensorflow_api"]
    one, two = set(table["first"].split()), set(table["second"].split())
    whole = {_cut_inner(name): line for name, line in every.items() if _OF_TENSORFLOW.fullmatch(name)}
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler)]  # this code is for other releases
    spared = {line for node in handlers for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    whole = {name: line for name, line in whole.items() if line not in spared}
    used = {part: line for name, line in reversed(whole.items()) for part in _list_beginnings(name)}
    if "__version__" in used or any(isinstance(node, ast.Name) and node.id.startswith("IS_TF") for node in nodes):
        return (0, 0), 0, ()  # the code checks the release
    firsts = {name: line for name, line in used.items() if name in one or name.partition(".")[0] == "contrib"}
    seconds = {name for name in used if name in two}
    limits = [
        (limit, line) for name, line in used.items() for key, limit in table["since"].items() if _is_below(name, key)
    ]
    has_models = used or any(_is_below(name, "keras") for name in every)
    old = _list_old(nodes, table["methods"]) if has_models else ()
    return (len(firsts), min(firsts.values(), default=0)), len(seconds), (*limits, *old)


def _list_beginnings(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _cut_inner(module: str) -> str:
    """Removes the package's name from a dotted name, but keeps tensorflow.python.keras, which is a different Keras."""
    return re.sub(r"^(?:tensorflow\.python\.(?!keras)|\w+\.|\w+$)", "", module)


def _list_old(nodes: list[ast.AST], methods: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Yields limits from code that names no API: methods of models, options of optimizers, names of metrics."""
    texts = {
        node.value: node.lineno for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    metrics = {
        text for node in nodes if isinstance(node, ast.keyword) and node.arg == "metrics" for text in _deep(node)
    }
    if "accuracy" in metrics and "acc" not in metrics and "val_acc" in texts:
        yield "<2", texts["val_acc"]  # later releases name it val_accuracy
    is_mixed = any(isinstance(node, ast.Import) and node.names[0].name.startswith("torch") for node in nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and _name(node) in _OPTIMIZERS and not is_mixed:
            is_legacy = "legacy" in ast.unparse(node.func)
            yield from (
                [("<2.11", node.lineno)] if not is_legacy and {"lr", "decay"} & {k.arg for k in node.keywords} else []
            )
        elif isinstance(node, ast.Attribute) and node.attr in methods:
            yield methods[node.attr], node.lineno


def _deep(node: ast.AST) -> Iterator[str]:
    yield from (
        inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    )


def _find_program(call: ast.Call) -> str:
    """Returns the program that a call starts, as in `subprocess.run(["git", "log"])` and `os.system("git log")`."""
    if _name(call) not in _RUNS or not call.args:
        return ""
    words = call.args[0].elts if isinstance(call.args[0], ast.List | ast.Tuple) else call.args[:1]
    first = words[0].value if words and isinstance(words[0], ast.Constant) else ""
    return first.split()[0] if isinstance(first, str) and first.split() else ""


def _is_old_keras(call: ast.Call) -> bool:
    words = {word.arg for word in call.keywords}
    return (
        bool(words & {"nb_epoch", "samples_per_epoch", "nb_val_samples"})
        or (bool(_OLD_LAYER.fullmatch(_name(call))) and "border_mode" in words)
        or (_name(call) == "Model" and bool(words & {"input", "output"}))
    )


def _is_below(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.")


def _list_paths(nodes: list[ast.AST]) -> Iterator[str]:
    """Yields texts that look like relative paths, except those that code joins to `__file__`."""
    joins = (node for node in nodes if isinstance(node, ast.Call | ast.BinOp) and _is_beside(node))
    others = {id(inner) for node in joins for inner in ast.walk(node)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 100:
            text = node.value
            is_path = ("/" in text or re.search(r"\.\w{2,5}$", text)) and _PATH.fullmatch(text)
            if is_path and id(node) not in others:
                yield text


def _is_beside(node: ast.Call | ast.BinOp) -> bool:
    """Tells whether an expression joins a path to the folder of the file itself (`__file__`)."""
    parts = node.args if isinstance(node, ast.Call) else [node.left]
    return any(isinstance(inner, ast.Name) and inner.id == "__file__" for part in parts for inner in ast.walk(part))


def read_options(calls: list[ast.Call]) -> tuple[Option, ...]:
    """Returns the options and the required arguments of a program, in the order of the file."""
    ordered = sorted(calls, key=lambda call: call.lineno)
    options = {option.name: option for call in ordered if (option := _option(call))}
    marked = {f"--{name}" for call in ordered if _name(call) in _MARKS for name in _texts(call)}
    return tuple(Option(name, option.required or name in marked) for name, option in options.items())


def _option(call: ast.Call) -> Option | None:
    """Returns the option or the required argument that a call defines."""
    name, texts = _name(call), [*_texts(call)]
    is_required = any(word.arg == "required" and _is_true(word.value) for word in call.keywords)
    if name.startswith("DEFINE_") and texts and _ARGUMENT.fullmatch(texts[0]):
        return Option(f"--{texts[0]}", is_required)
    if name not in {"add_argument", "option", "argument"}:
        return None
    long = next((text for text in texts if _OPTION.fullmatch(text)), None)
    if long is not None:
        return Option(long, is_required)
    is_optional = any(word.arg in {"nargs", "default"} for word in call.keywords)
    is_argument = name in {"add_argument", "argument"} and len(texts) == 1 and _ARGUMENT.fullmatch(texts[0])
    return Option(texts[0], required=True) if is_argument and not is_optional else None


def _name(call: ast.Call) -> str:
    """Returns the called function's name, without the modules or objects before it."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _texts(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        nodes = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        yield from (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
