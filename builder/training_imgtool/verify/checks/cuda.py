"""CUDA and cuDNN: the loader opens them, with the planned versions, complete for XLA, and once."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from training_imgtool.spec.model import Accelerator
from training_imgtool.verify.case import Case, shorten
from training_imgtool.verify.checks.python import format_failure
from training_imgtool.verify.facts import Fields, Finding

_VERSION = {"cuda": re.compile(r"libcudart\.so\.(\d[\d.]*)\Z"), "cudnn": re.compile(r"libcudnn\.so\.(\d[\d.]*)\Z")}
_WORD = {"cuda": ("CUDA_VERSION",), "cudnn": ("NV_CUDNN_VERSION",)}
_WHEEL = {"cuda": re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?\Z"), "cudnn": re.compile(r"nvidia-cudnn(?:-cu\d+)?\Z")}
_CUDA_BASE = frozenset({"CUDA_VERSION", "NV_CUDA_CUDART_VERSION"})
_SITE = "opt/venv/"


def make_findings(case: Case) -> Iterator[Finding]:
    """Yields the checks of an image that computes on GPUs, and that another holds no CUDA."""
    if case.variant.accelerator is not Accelerator.GPU:
        if present := _find_stems(case, ""):
            yield case.warn("cuda", f"in an image without GPUs: {shorten(sorted(present))}", "none")
        return
    yield _check_libraries(case)
    for name, planned in (("cuda", case.variant.cuda), ("cudnn", case.variant.cudnn)):
        if planned is not None:
            yield _check_version(case, name, planned)
    yield _check_xla(case)
    yield _check_duplicates(case)
    yield _check_gpus(case)


def _check_libraries(case: Case) -> Finding:
    planned = case.variant.libraries
    opened = case.run_part("libraries")
    if opened is not None:
        wrong = [
            f"{library['name']} does not open: {library.get('error')}"
            for library in opened["libraries"]
            if "error" in library
        ]
        in_wheels = case.facts.tree.list_libraries()
        expected = len(in_wheels.union(planned))
        if wrong:
            return case.wrong("libraries", shorten(wrong, 3), f"{expected} libraries that TensorFlow opens")
        where = f", {len(in_wheels)} from wheels" if in_wheels else ""
        return case.ok("libraries", f"{len(opened['libraries'])} open{where}", f"{expected}")
    return _check_library_files(case, planned)


def _check_library_files(case: Case, planned: tuple[str, ...]) -> Finding:
    removed = {posixpath.basename(path) for listing in case.facts.listings.values() for path in listing.removed}
    names = {posixpath.basename(item["path"]) for item in case.facts.tree.of("library")}
    removed_names = [name for name in planned if name in removed - names]
    if removed_names:
        return case.wrong(
            "libraries", f"{shorten(removed_names)} removed by a layer above the base", ", ".join(planned)
        )
    missing = [name for name in planned if name not in names]
    if not missing:
        return case.ok("libraries", f"{len(planned)} are there, not opened")
    if case.facts.tree.complete:
        return case.wrong("libraries", f"no {shorten(missing)}", ", ".join(planned))
    return case.unseen("libraries", f"{shorten(missing)} would lie in layers that were not read")


def _check_version(case: Case, name: str, planned: str) -> Finding:
    for version, how in _find_versions(case, name):
        same = _agree(version, planned)
        return case.ok(name, f"{version}{how}", planned) if same else case.wrong(name, f"{version}{how}", planned)
    if case.run_part("libraries") is not None:
        return case.warn(name, "no library says its version", planned)
    return case.unseen(name, "its libraries would lie in layers that were not read")


def _find_versions(case: Case, name: str) -> Iterator[tuple[str, str]]:
    """Versions, the most certain first: what the library answers, its file's name, its wheel, what the base says."""
    for library in (case.run_part("libraries") or {}).get("libraries", ()):
        if library["name"].startswith(f"lib{'cudart' if name == 'cuda' else name}.") and library.get("version"):
            yield _format_version(name, int(library["version"])), ""
    for item in case.facts.tree.of("library"):
        match = _VERSION[name].search(item["path"])
        if match and match[1].count(".") >= 2:
            yield match[1], " by its file's name"
    for package in case.installed:
        if _WHEEL[name].match(package.name):
            yield package.version, " by its wheel"
    for variable in _WORD[name]:
        if word := case.facts.env.get(variable):
            yield word.partition("-")[0], f" by the base's {variable}"


def _format_version(name: str, number: int) -> str:
    """Formats 12020 as CUDA 12.2; 8906 as cuDNN 8.9.6, and 90300 as 9.3.0 (cudnn_version.h)."""
    if name == "cuda":
        return f"{number // 1000}.{number % 1000 // 10}"
    major = 10_000 if number >= 90_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _agree(version: str, planned: str) -> bool:
    """Returns whether two versions agree as far as both say something: CUDA's libraries count on from its minor."""
    pairs = list(zip(version.split("."), planned.split("."), strict=False))
    return all(ours == theirs for ours, theirs in pairs[:2])


def _check_xla(case: Case) -> Finding:
    tools = {posixpath.basename(item["path"]): f"/{item['path']}" for item in case.facts.tree.of("tool")}
    lacks = [name for name in ("ptxas", "libdevice") if not any(tool.startswith(name) for tool in tools)]
    if not lacks:
        return case.ok("xla", ", ".join(tools[name] for name in sorted(tools)))
    reason = _find_xla_request(case)
    expected = "ptxas and libdevice, which XLA compiles with"
    if reason and case.own_seen:
        return case.wrong("xla", f"no {' and no '.join(lacks)}", f"{expected}: {reason}")
    if not case.facts.tree.complete:
        return case.unseen("xla", f"{' and '.join(lacks)} may lie in layers that were not read")
    return case.warn("xla", f"no {' and no '.join(lacks)}", f"{expected}; add nvidia-cuda-nvcc if the trainer uses XLA")


def _find_xla_request(case: Case) -> str | None:
    """Finds what in the spec or the lock says that XLA is to work."""
    for wheel in case.image.plan.locked.wheels:
        if "cuda-nvcc" in wheel.name:
            return f"the lock has {wheel.name}"
    for package in case.image.plan.system_packages:
        if "cuda-nvcc" in package:
            return f"the spec installs {package}"
    return next(
        (f"the spec sets {name}" for name in case.image.plan.env if name in {"XLA_FLAGS", "TF_XLA_FLAGS"}), None
    )


def _find_stems(case: Case, where: str) -> set[str]:
    """Finds the CUDA libraries' names without versions, below /opt/venv (`where` is that path) or outside of it."""
    files = (item["path"] for item in case.facts.tree.of("library") if _is_file(item))
    return {
        posixpath.basename(path).partition(".so")[0] for path in files if path.startswith(_SITE) == (where == _SITE)
    }


def _is_file(item: Fields) -> bool:
    return "link" not in item and item["size"] > 0


def _check_duplicates(case: Case) -> Finding:
    wheels, system = _find_stems(case, _SITE), _find_stems(case, "")
    if both := sorted(wheels & system):
        size = sum(
            item["size"]
            for item in case.facts.tree.of("library")
            if _is_file(item)
            and item["path"].startswith(_SITE)
            and posixpath.basename(item["path"]).partition(".so")[0] in both
        )
        problem = f"{shorten(both)} in the system and in wheels ({size / 1e6:.1f} MB more)"
        return case.wrong("cuda once", problem, "CUDA in one place")
    word = next((name for name in sorted(_CUDA_BASE) if name in case.facts.env), None)
    if wheels and word and not case.facts.tree.complete:
        problem = f"{shorten(sorted(wheels))} in wheels, on a base with CUDA ({word})"
        return case.wrong("cuda once", problem, "CUDA in one place")
    if not case.own_seen:
        return case.unseen("cuda once", "not all layers above the base were read")
    return case.ok("cuda once", "in wheels" if wheels else "in the system" if system else "no wheel has it")


def _check_gpus(case: Case) -> Finding:
    if not case.facts.gpus:
        return case.unseen("gpu", case.facts.no_gpus)
    computed = case.run_part("compute")
    if computed is None or "error" in computed:
        return case.wrong(
            "gpu", format_failure(computed) if computed else "nothing was computed", "a product of matrices on each GPU"
        )
    if not computed["gpus"]:
        return case.wrong("gpu", "TensorFlow sees none", "the GPUs of the machine")
    return case.ok("gpu", f"{len(computed['gpus'])} visible, a product of matrices on each")
