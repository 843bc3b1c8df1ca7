"""Finds out which build of PyTorch a project installs: for the CPU, or for a version of CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from imgtool_project_reader.listings import Listing
from imgtool_project_reader.read import Project
from imgtool_project_reader.statement import Certainty, Fact, Statement, is_dockerfile

_ONLY_NCCL = re.compile(r"""(?m)^[^#\n]*\binit_process_group\((?:backend\s*=\s*)?["']nccl["']""")
_NCCL = re.compile(r"""(?m)^[^#\n]*["']nccl["']""")
_GLOO = re.compile(r"""(?m)^[^#\n]*["']gloo["']""")


def list_builds(project: Project, listings: tuple[Listing, ...], folder: str) -> Iterator[list[Statement]]:
    """Yields the builds that the listing, the Dockerfiles near the program, and the other files name."""
    main = {item.file for listing in listings[:1] for item in listing.statements}
    rows = [item for items in project.statements.values() for item in items if item.fact is Fact.BUILD]
    near = {item.file for item in rows if is_dockerfile(item.file) and item.file.rpartition("/")[0] in {"", folder}}
    yield [item for item in rows if item.file in main]
    yield [item for item in rows if item.file in near - main]
    yield [item for item in rows if item.file not in near | main]


def find_kind(project: Project, builds: Iterable[list[Statement]], paths: Iterable[str]) -> tuple[str, str] | None:
    """Returns the accelerator, and what tells of it: the files that agree on the builds, or code that needs NCCL."""
    for rows in builds:
        kinds = {"cpu" if item.value == "cpu" else "gpu" for item in rows}
        if len(kinds) == 1:
            return kinds.pop(), f"{rows[0].place}: PyTorch for {'GPUs' if rows[0].value == 'cu' else rows[0].value}"
    texts = {path: project.read(path) for path in paths}
    can_choose = any(map(_GLOO.search, texts.values()))
    for path, text in texts.items():
        if match := (_ONLY_NCCL if can_choose else _NCCL).search(text):
            return "gpu", f"{path}:{text.count(chr(10), 0, match.end()) + 1}: nccl"
    if can_choose:
        return None
    launched = (item for rows in project.statements.values() for item in rows if item.fact is Fact.LAUNCH)
    several = (
        item for item in launched if re.search(r"nproc[-_]per[-_]node[= ](?:gpu|[2-9]|\d\d|\$\w*GPU)", item.value)
    )
    return next(((("gpu", f"{item.place}: {item.value}")) for item in several), None)


def find_cuda(builds: Iterable[list[Statement]]) -> Statement | None:
    """Returns the most trusted statement of a build for CUDA, with the version as its value (12.6)."""
    rows = (item for rows in builds for item in rows if item.value.startswith("cu"))
    best = min(rows, key=lambda item: item.certainty is not Certainty.STATED, default=None)
    number = best.value.removeprefix("cu") if best else ""
    return Statement(Fact.BUILD, f"{number[:-1]}.{number[-1]}", best.file, best.line) if best and number else None
