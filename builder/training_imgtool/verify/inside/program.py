"""The program that runs inside an image and prints what it sees, one JSON object per line.

`inspect_container` sends it as the argument of `python -c`, behind the modules that it imports and before a call of
`look` or `run` (`write_program`), so it needs the standard library only and keeps to Python 3.7. A child does the work;
its parent ends it when the time is up and prints how it ended, since importing TensorFlow or a trainer may crash or
never return. The output contains text of the image: the reader must sanitize it.
"""
# A walk over a whole file system should be quick, and whatever an image's own code raises is an answer:
# ruff: noqa: PTH115, PTH123, PTH207, BLE001

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import runpy
import signal
import stat
import sys
import time
import traceback
from typing import TYPE_CHECKING

from training_imgtool.verify.inside.bytecode import find_differing_bytecode, name_source
from training_imgtool.verify.inside.interesting_paths import classify, describe, settle, sum_folders, wants_look
from training_imgtool.verify.inside.venv_files import VENV, compare_records, hash_content

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Fields = dict[str, Any]
    Report = Callable[[Fields], None]


def look(request: Fields) -> None:
    """Prints the interpreter, the files and the libraries. Nothing of the image but its interpreter is run."""

    def work(report: Report) -> None:
        _report_interpreter(report)
        bytecode = _report_files(request["folders"], request["exclude"], report)
        _report_libraries(request["libraries"], report)
        _report_bytecode(bytecode, request["compared"], report)

    _run_apart(request["seconds"], work)


def run(request: Fields) -> None:
    """Imports TensorFlow, computes a little with it, then imports the trainer as a module, without running it."""

    def work(report: Report) -> None:
        _report_tensorflow(report)
        _report_trainer(request["module"], report)

    _run_apart(request["seconds"], work)


def _report_interpreter(report: Report) -> None:
    version = platform.python_version()
    info = {
        "implementation_name": sys.implementation.name,
        "implementation_version": version,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": version,
        "platform_python_implementation": platform.python_implementation(),
        "python_version": ".".join(version.split(".")[:2]),
        "sys_platform": sys.platform,
    }
    report({"part": "python", "version": version, "executable": os.path.realpath(sys.executable), "markers": info})


def _report_files(hashed: list[str], exclude: list[str], report: Report) -> list[list[Any]]:
    """Reports the files of interest, and the hashes of those in the folders `hashed`.

    Returns the path of each file of bytecode with the hashes of its source and its own.
    """
    items: list[Fields] = []
    contents: Fields = {}
    prefixes = (VENV, *(folder + "/" for folder in hashed))
    own: dict[str, int] = {}
    seen: set[tuple[int, int]] = set()
    unread: list[str] = []
    root = os.lstat("/").st_dev
    folders = [""]
    while folders:
        folder = folders.pop()
        own[folder] = own.get(folder, 0)
        try:
            entries = sorted(os.scandir("/" + folder), key=lambda entry: entry.name)
        except OSError:
            unread.append(folder)
            continue
        for entry in entries:
            path = (folder + "/" + entry.name) if folder else entry.name
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode):
                if state.st_dev == root:
                    folders.append(path)
                continue
            if state.st_nlink > 1 and stat.S_ISREG(state.st_mode):
                if (state.st_dev, state.st_ino) not in seen:
                    own[folder] += state.st_size
                seen.add((state.st_dev, state.st_ino))
            else:
                own[folder] += state.st_size
            if path.startswith(prefixes):
                contents[path] = hash_content(path, state)
            fields = _describe_file(path, state)
            if fields is not None:
                items.append(fields)
    records = {fields["path"]: fields["text"] for fields in items if fields["kind"] == "record"}
    venv = {path: contents.pop(path) for path in list(contents) if path.startswith(VENV)}
    settled = [dict(fields, text="") if fields["kind"] == "record" else fields for fields in settle(items)]
    files = {"items": settled, "folders": sum_folders(own), "bytes": sum(own.values()), "unread": unread}
    report(dict(files, part="files", contents=contents, venv=compare_records(venv, records, exclude)))
    return [[path, venv[str(name_source(path))], venv[path]] for path in sorted(venv) if name_source(path) in venv]


def _report_bytecode(files: list[list[Any]], compared: list[str], report: Report) -> None:
    """Compares the bytecode with its sources, unless files of the same hashes were `compared` before."""
    content = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    report({"part": "reading bytecode", "count": len(files), "content": content})
    if content in compared:
        return
    differ = find_differing_bytecode([["/" + path, "/" + str(name_source(path)), "/" + path] for path, _, _ in files])
    report({"part": "bytecode", "differ": [path[1:] for path in differ]})


def _describe_file(path: str, state: os.stat_result) -> Fields | None:
    kind = classify(path)
    link = os.readlink("/" + path) if stat.S_ISLNK(state.st_mode) else None
    if kind == "source" or (link is None and not stat.S_ISREG(state.st_mode)):
        return None
    if kind is None and (link is not None or not wants_look(path, state.st_size)):
        return None

    def read(most: int) -> bytes:
        try:
            with open("/" + path, "rb") as stream:
                return stream.read(most)
        except OSError:
            return b""

    return describe(path, kind, state.st_size, read, link)


def _report_libraries(names: list[str], report: Report) -> None:
    libraries = []
    for name in names:
        fields: Fields = {"name": name, "place": "loader"}
        library = None
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            fields.update(error=str(error)[:300], place=None)
            for path in sorted(glob.glob("/opt/venv/lib/python*/site-packages/nvidia/*/lib/" + name)):
                try:  # where TensorFlow's own RUNPATH looks
                    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                    fields = {"name": name, "place": "wheel"}
                except OSError as inner:
                    fields["error"] = str(inner)[:300]
        if library is not None:
            fields["version"] = _ask_version(name, library)
            fields["file"] = _find_mapped(name)
        libraries.append(fields)
    report({"part": "libraries", "libraries": libraries})


def _ask_version(name: str, library: ctypes.CDLL) -> int | None:
    """The version that the library itself answers, as a number; None for libraries without such a function."""
    try:
        if name.startswith("libcudart."):
            number = ctypes.c_int()
            return number.value if library.cudaRuntimeGetVersion(ctypes.byref(number)) == 0 else None
        if name.startswith("libcudnn."):
            library.cudnnGetVersion.restype = ctypes.c_size_t
            return int(library.cudnnGetVersion())
    except AttributeError:
        pass
    return None


def _find_mapped(name: str) -> str | None:
    stem = name.partition(".so")[0] + ".so"
    try:
        with open("/proc/self/maps") as stream:
            return next((line.split(None, 5)[5].strip() for line in stream if "/" + stem in line), None)
    except OSError:
        return None


def _report_tensorflow(report: Report) -> None:
    try:
        tensorflow = importlib.import_module("tensorflow")
    except BaseException as error:
        report(dict(_describe_failure(error), part="tensorflow"))
        return
    fields: Fields = {"part": "tensorflow", "version": str(getattr(tensorflow, "__version__", "no version"))}
    try:
        fields["build"] = {key: _simplify(value) for key, value in dict(tensorflow.sysconfig.get_build_info()).items()}
    except Exception:  # before 2.3 there is none; the reader names what is missing
        fields["build"] = {}
    report(fields)
    try:
        report(dict(_compute(tensorflow), part="compute"))
    except BaseException as error:
        report(dict(_describe_failure(error), part="compute"))


def _compute(tensorflow: Any) -> Fields:
    config = tensorflow.config
    listed = getattr(config, "list_physical_devices", None) or config.experimental.list_physical_devices
    gpus = [device.name for device in listed("GPU")]
    used = []
    for device in [f"/GPU:{number}" for number in range(len(gpus))] or ["/CPU:0"]:
        with tensorflow.device(device):
            product = tensorflow.matmul([[1.0, 2.0], [3.0, 4.0]], [[5.0], [6.0]])
        eager = tensorflow.executing_eagerly()
        values = (product.numpy() if eager else tensorflow.compat.v1.Session().run(product)).tolist()
        if values != [[17.0], [39.0]]:
            raise ValueError(f"{device}: a product of matrices came out as {values}")
        used.append(device)
    return {"gpus": gpus, "used": used}


def _report_trainer(module: str, report: Report) -> None:
    script = module.endswith(".py")
    sys.path.insert(0, module.rpartition("/")[0] if script else "")  # where `python FILE` and `python -m` look first
    try:
        spec = None if script else importlib.util.find_spec(module)
        if spec is None and not script:
            report({"part": "trainer", "error": "ModuleNotFoundError", "message": f"No module named {module!r}"})
            return
        name = module + ".__main__" if spec and spec.submodule_search_locations is not None else module
        report({"part": "importing", "name": name})
        file = runpy.run_path(name, run_name="script")["__file__"] if script else importlib.import_module(name).__file__
    except SystemExit as left:
        report({"part": "trainer", "left": str(left.code)})
        return
    except BaseException as error:
        report(dict(_describe_failure(error), part="trainer"))
        return
    report({"part": "trainer", "file": file})


def _describe_failure(error: BaseException) -> Fields:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    words = (str(error).strip().splitlines() or [""])[0]
    return {"error": type(error).__name__, "message": words[:300], "where": where}


def _simplify(value: Any) -> Any:
    return value if isinstance(value, (bool, int, str)) else [str(part) for part in value]


def _run_apart(seconds: float, work: Callable[[Report], object]) -> None:
    """Does the work in a child, whose prints go to stderr; reports how it ended, after `seconds` at the latest."""
    channel = os.dup(1)
    os.dup2(2, 1)

    def report(fields: Fields) -> None:
        data = (json.dumps(fields) + "\n").encode()
        while data:
            data = data[os.write(channel, data) :]

    child = os.fork()
    if child == 0:
        try:
            work(report)
        except BaseException as error:
            report(dict(_describe_failure(error), part="broken"))
        os._exit(0)
    deadline, ended, status, late = time.time() + seconds, 0, 0, False
    while not ended:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            if time.time() > deadline and not late:
                late = True
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
    report({"part": "end", "late": late, "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})


def write_program(call: str, request: Fields, modules: tuple[str, ...]) -> str:
    """Returns a program: the texts of modules that import each other, in that order, and a call of a function."""
    lines = [line for text in modules for line in text.splitlines()]
    code = [line for line in lines if not line.startswith(("from __future__", "from training_imgtool."))]
    return "\n".join(["from __future__ import annotations", *code, f"{call}(json.loads({json.dumps(request)!r}))", ""])
