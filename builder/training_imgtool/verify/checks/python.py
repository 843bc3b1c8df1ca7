"""Python, TensorFlow and the packages: as locked, complete, and importable."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace

from packaging.version import InvalidVersion, Version

from training_imgtool.spec.model import Accelerator
from training_imgtool.verify.case import Case
from training_imgtool.verify.facts import Fields, Finding, Status
from training_imgtool.versions.closure import find_broken, is_same_version
from training_imgtool.versions.markers import marker_environment

_LINK = "opt/venv/bin/python"


def make_findings(case: Case) -> Iterator[Finding]:
    """Yields the checks of the environment in /opt/venv."""
    yield _check_python(case)
    yield _check_tensorflow(case)
    yield from _build(case)
    yield from _check_packages(case)


def _check_python(case: Case) -> Finding:
    """Checks Python by its files; where a container ran, also by what it called itself there."""
    by_files, planned = _check_python_files(case), case.variant.python
    if by_files.status is Status.MISMATCH or case.facts.run is None:
        return by_files
    started = case.run_part("python")
    if started is None:
        return case.wrong("python", f"/{_LINK} does not start: {describe_end(case)}", planned)
    version = str(started["version"])
    same = version.split(".")[:2] == planned.split(".")
    return case.ok("python", version, planned) if same else case.wrong("python", version, planned)


def _check_python_files(case: Case) -> Finding:
    """Returns what the environment says it was made with, and whether its interpreter is there, without running it."""
    items, planned = case.facts.tree.items, case.variant.python
    target = _follow(_LINK, items)
    if wrong := _find_environment_fault(case) or _find_interpreter_fault(case, target):
        return case.wrong("python", wrong, planned)
    if target in items:
        return case.ok("python", f"/{target}, not run", planned)
    if case.facts.tree.complete:
        return case.wrong("python", f"/{target} is missing", planned)
    return case.unseen("python", f"/{target} lies in layers that were not read; the environment is for {planned}")


def _find_environment_fault(case: Case) -> str | None:
    planned = case.variant.python
    config = case.facts.tree.items.get("opt/venv/pyvenv.cfg", {}).get("text", "")
    pairs = (line.partition("=") for line in config.splitlines())
    version = {key.strip(): value.strip() for key, _, value in pairs}.get("version", "")
    if version.split(".")[:2] != planned.split("."):
        return f"pyvenv.cfg says {version or 'nothing'}"
    folders = {item["path"].partition("/site-packages/")[0] for item in case.facts.tree.of("metadata")}
    others = {f"{folder}/site-packages" for folder in folders - {f"opt/venv/lib/python{planned}"}}
    return f"packages in /{', /'.join(sorted(others))}" if others else None


def _find_interpreter_fault(case: Case, target: str | None) -> str | None:
    planned = case.variant.python
    if target is None:
        return f"/{_LINK} is missing"
    if posixpath.basename(target) not in {f"python{planned}", "python3", "python"}:
        return f"/{_LINK} leads to /{target}"
    base = case.facts.env.get("PYTHON_VERSION")  # of the official Python images
    if base and case.variant.python_from == "image" and base.split(".")[:2] != planned.split("."):
        return f"{base} by the base's PYTHON_VERSION"
    return None


def _follow(path: str, items: Mapping[str, Fields]) -> str | None:
    """Returns where a chain of links ends; None when the image does not have the first."""
    if path not in items:
        return None
    for _ in range(8):
        link = items.get(path, {}).get("link")
        if link is None:
            return path
        path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), link)).lstrip("/")
    return path


def _check_tensorflow(case: Case) -> Finding:
    package, planned = case.variant.package, case.variant.tensorflow
    imported = case.run_part("tensorflow")
    if imported is None and case.facts.run is None:
        return _check_tensorflow_files(case)
    if imported is None or "error" in imported:
        why = describe_end(case) if imported is None else format_failure(imported)
        return case.wrong("tensorflow", f"does not import: {why}", f"{package} {planned}")
    version = str(imported["version"])
    if not _is_release(version, planned):
        return case.wrong("tensorflow", version, planned)
    by_files = _check_tensorflow_files(case)
    if by_files.status is Status.MISMATCH:
        return by_files
    return case.ok("tensorflow", f"{version}, imported (a smoke test)", f"{package} {planned}")


def _check_tensorflow_files(case: Case) -> Finding:
    package, planned = case.variant.package, case.variant.tensorflow
    present = [other.version for other in case.installed if other.name == package]
    if present and is_same_version(present[0], planned):
        return case.ok("tensorflow", f"{package} {present[0]}, not run", planned)
    if present:
        return case.wrong("tensorflow", f"{package} {present[0]}", planned)
    if case.own_seen:
        return case.wrong("tensorflow", f"no {package}", planned)
    return case.unseen("tensorflow", f"the layers of {package} were not read")


def _is_release(version: str, planned: str) -> bool:
    """Compares a release with what it calls itself: 2.15.0.post1 says 2.15.0."""
    try:
        return Version(version) in {Version(planned), Version(Version(planned).base_version)}
    except InvalidVersion:
        return False


def _build(case: Case) -> Iterator[Finding]:
    """Yields what TensorFlow was compiled for, and one product of two matrices."""
    build = (case.run_part("tensorflow") or {}).get("build") or {}
    gpu = case.variant.accelerator is Accelerator.GPU
    if build and gpu:
        with_cuda = build.get("is_cuda_build")
        shown = f"CUDA {build.get('cuda_version', '?')}, cuDNN {build.get('cudnn_version', '?')}"
        planned = f"CUDA {case.variant.cuda}, cuDNN {case.variant.cudnn}"
        same = all(
            str(build.get(key, "")).partition(".")[0] in {"", str(plan or "").partition(".")[0]}
            for key, plan in (("cuda_version", case.variant.cuda), ("cudnn_version", case.variant.cudnn))
        )
        if not with_cuda:
            yield case.wrong("tensorflow build", "for the CPU only", planned)
        else:
            yield (case.ok if same else case.wrong)("tensorflow build", f"for {shown}", planned)
    elif build:
        yield case.ok("tensorflow build", "with CUDA" if build.get("is_cuda_build") else "for the CPU")
    computed = case.run_part("compute")
    if computed is not None and "error" in computed:
        yield case.wrong("compute", format_failure(computed), "a product of two matrices")
    elif computed is not None:
        yield case.ok("compute", f"a product of two matrices on {', '.join(computed['used'])}")
    elif (imported := case.run_part("tensorflow")) and "error" not in imported:
        yield case.wrong("compute", describe_end(case), "a product of two matrices")


def _check_packages(case: Case) -> Iterator[Finding]:
    if not case.own_seen:
        yield case.unseen("wheels", "not all layers above the base were read")
        yield case.unseen("pip check", "not all layers above the base were read")
        return
    yield from _check_files(case)
    markers = marker_environment(case.variant.python, case.image.plan.platform)
    complaints = list(find_broken(case.installed, markers, provided={"tensorflow": case.variant.package}))
    if complaints:
        yield case.differs("pip check", complaints, "no broken requirements")
    else:
        yield case.ok("pip check", "no broken requirements")


def _check_files(case: Case) -> Iterator[Finding]:
    """Yields what the locked wheels come to: their files, and the bytecode of these."""
    made, wheels = case.facts.expected, len(case.image.plan.locked.wheels)
    expected = f"every file of the {wheels} wheels of the lock, and no other"
    if made is None:
        yield case.unproven("wheels", "/opt/venv", case.facts.unmade)
        return
    found = case.compared.complaints
    if found["wheels"]:
        yield case.differs("wheels", found["wheels"], expected)
    else:
        yield case.ok("wheels", f"{wheels} packages", expected)
    if found["bytecode"]:  # by another release of Python, or by somebody else: which of them, nothing here can tell
        why = "what this machine makes of the sources" if made.compiled else made.why
        yield replace(case.differs("bytecode", found["bytecode"], why), status=Status.UNPROVEN)
    else:
        yield case.ok("bytecode", f"{case.compared.bytecode} files", "what this machine makes of the sources")


def format_failure(error: Fields) -> str:
    """Formats an exception as one line, with the place where it came up."""
    where = f" ({error['where']})" if error.get("where") else ""
    return f"{error['error']}: {error.get('message', '')}{where}"


def describe_end(case: Case) -> str:
    """Describes how the importing container ended, where it printed no result."""
    run = case.facts.run
    if broken_off := case.run_part("broken"):
        return format_failure(broken_off)
    end = case.run_part("end") or {}
    if end.get("late"):
        return "it did not end in time"
    if end.get("signal"):
        return f"it was killed by signal {end['signal']}"
    return (run.fault if run else None) or (run.errors.splitlines()[-1] if run and run.errors else "it printed nothing")
