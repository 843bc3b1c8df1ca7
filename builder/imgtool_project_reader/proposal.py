"""Proposes a spec for a project: chooses releases that satisfy the files' statements, and marks every guess."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from imgtool_project_reader.builds import find_cuda, find_kind, list_builds
from imgtool_project_reader.evidence import Evidence, find_accelerator, find_framework
from imgtool_project_reader.frameworks import FRAMEWORKS, TORCH
from imgtool_project_reader.knowledge import Knowledge, Variant
from imgtool_project_reader.listings import Listing, rank_listings
from imgtool_project_reader.packages import Concessions, Needs, choose_packages
from imgtool_project_reader.placement import Placement, place
from imgtool_project_reader.programs import Code, Program, Reached, list_variables
from imgtool_project_reader.read import Project, read_project, write_head
from imgtool_project_reader.releases import Choice, Judged, choose
from imgtool_project_reader.source import write_cells
from imgtool_project_reader.statement import Certainty, Fact, Statement, is_dockerfile, parse_requirement

_NO_VARIABLE = re.compile(
    r"KEY|TOKEN|SECRET|PASS|^(?:TF_CONFIG|CLUSTER_SPEC|PYTHONPATH|CUDA_VISIBLE_DEVICES|PATH|HOME)$"
)
_USUAL_PYTHON = "3.11"
_LOWEST_SCORE = -12  # below this score, a program does not train


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table that shows the statements and their files."""

    fact: str
    value: str
    place: str
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The proposed values of a project's spec.

    Attributes:
        project: the files and statements.
        evidence: the framework, and what tells of it.
        choice: the release of the framework, and Python.
        python: the Python minor of the images: the choice's, else imgtool's default for the release.
        accelerator: the roles' accelerator, and the reason.
        cuda: the CUDA of the build that a file names, if the accelerator is gpu.
        needs: the packages that the image installs.
        programs: the programs that may train, with the chosen one first.
        placement: how the image starts the first program; None if there is no program, or if no spec can start it.
        reached: the files and packages that the first program imports, directly or through others.
        listings: the files that list packages.
        name: the project's own name, if a file states one.
    """

    project: Project
    evidence: Evidence
    choice: Choice
    python: str
    accelerator: str
    accelerator_from: str | None
    cuda_from: str | None
    cuda: Statement | None
    needs: Needs
    programs: tuple[Program, ...]
    placement: Placement | None
    reached: Reached | None
    listings: tuple[Listing, ...]
    name: str | None

    def list_variables(self) -> dict[str, str]:
        """Returns the variables that the program's commands set and its code names; leaves out what no value can be."""
        texts = [self.project.read(source.path) for source in (self.reached.sources if self.reached else ())]
        commands = self.program.commands if self.program else ()
        found = {name: value for command in reversed(commands) for name, value in list_variables(command).items()}
        return {
            name: value
            for name, value in found.items()
            if not _NO_VARIABLE.search(name) and re.fullmatch(r"[\w ./:,@+=%-]+", value, re.ASCII)
            if any(re.search(rf"\b{name}\b", text) for text in texts)
        }

    def list_unbound(self) -> Iterator[tuple[str, str, str]]:
        """Yields each package that a file binds to an index and a line of the spec does not: place, package, index."""
        parsed = [parse_requirement(line.text) for line in self.needs.lines]
        lines = {canonicalize_name(requirement.name) for requirement in parsed if requirement}
        for item in (item for rows in self.project.statements.values() for item in rows if item.fact is Fact.BOUND):
            package, _, index = item.value.partition(" ")
            if canonicalize_name(package) in lines:
                yield item.place, package, index

    @property
    def launcher(self) -> Statement | None:
        """The first command of torchrun that starts the program, if possible on several machines."""
        places = {item.place for item in (self.program.commands if self.program else ())}
        rows = (item for items in self.project.statements.values() for item in items if item.fact is Fact.LAUNCH)
        return min(
            (item for item in rows if item.place in places),
            key=lambda item: not re.search(r"nnodes[= ](?:\d+:)?(?!1\b)\d", item.value),
            default=None,
        )

    @property
    def program(self) -> Program | None:
        """The program that the image starts."""
        return self.programs[0] if self.programs else None

    @property
    def has_code(self) -> bool:
        """Whether the folder contains Python code. If there is code, imgtool does not write a program of its own."""
        return any(file.endswith((".py", ".ipynb")) for file in self.project.files)

    @property
    def new_files(self) -> dict[str, str]:
        """Maps the path of each script for a notebook to the script's text."""
        if self.placement is None or self.placement.new_file is None or self.program is None:
            return {}
        cells = "".join(write_cells(self.project.read(self.program.path))).rstrip()
        return {self.placement.new_file: f"{write_head(self.program.path)}\n{cells}\n"}

    def table(self) -> tuple[Row, ...]:
        """Returns the rows of the table of statements."""
        rows = [
            Row(
                judged.statement.fact,
                judged.statement.value,
                judged.statement.place,
                "" if judged.followed else "not followed: it contradicts the lines above",
            )
            for judged in self.choice.rows
        ]
        if self.accelerator_from:
            rows.append(Row("accelerator", self.accelerator, self.accelerator_from))
        for listing in self.listings[:1]:
            remark = f"as {listing.named_by} installs it" if listing.named_by else ""
            rows.append(Row("packages", str(len(listing.packages)), listing.file, remark))
        rows += [
            Row("package", line.text, line.place, "a guess" if line.guess else "")
            for line in self.needs.lines
            if line.guess
        ]
        rows += [Row("package", text, "", f"limit left out: {why}") for text, why in self.needs.dropped]
        if self.program:
            said = next((f"{item.place}: {item.value}" for item in self.program.commands), None)
            rows.append(Row("program", self.program.path, said or ", ".join(self.program.reasons[:3])))
        return tuple(dict.fromkeys(rows))


def propose(
    folder: Path,
    knowledge: Knowledge,
    *,
    framework: str | None = None,
    release: str | None = None,
    accelerator: str | None = None,
    concessions: Concessions | None = None,
) -> Proposal:
    """Proposes a spec for the files in `folder`. The other arguments take precedence over the files."""
    project = read_project(folder, knowledge.read_yaml)
    code = Code(project, knowledge.report)
    programs = tuple(program for program in code.rank() if program.score >= _LOWEST_SCORE)
    program = programs[0] if programs else None
    where = program.folder if program else "."
    reached = code.reach(program.source) if program else None
    ranked = rank_listings(project, where, program.path if program else "")
    listings = ranked if ranked and ranked[0].score > 0 else ()
    given = FRAMEWORKS[framework] if framework else None
    evidence = Evidence(framework=given) if given else find_framework(code, listings, reached)
    releases = knowledge.list_releases(evidence.framework.key)
    choice = choose(project, listings, reached, releases, framework=evidence.framework, folder=where, given=release)
    if evidence.statement:
        choice = replace(choice, rows=(Judged(evidence.statement, followed=True), *choice.rows))
    builds = [*list_builds(project, listings, where)] if evidence.framework is TORCH else []
    of_build = (
        find_kind(project, builds, [source.path for source in reached.sources] if reached else []) if builds else None
    )
    kind, kind_from = find_accelerator(evidence, listings) or of_build or _choose_accelerator(project, listings, where)
    kind, kind_from = (accelerator, None) if accelerator else (kind, kind_from)
    wants_wheels = any("and-cuda" in item.requirement.extras for listing in listings[:1] for item in listing.packages)
    variant, kind, kind_from, choice = _resolve(choice, kind, kind_from, knowledge, given=accelerator is not None)
    has_wheels = (
        wants_wheels and kind == "gpu" and choice.release in releases and releases[choice.release].has_cuda_wheels
    )
    needs = (
        choose_packages(
            project, listings, reached, variant, knowledge, concessions=concessions or Concessions(), folder=where
        )
        if variant
        else Needs()
    )
    names = [
        item for rows in project.statements.values() for item in rows if item.fact is Fact.NAME and "/" not in item.file
    ]
    return Proposal(
        project=project,
        evidence=evidence,
        choice=choice,
        python=variant.python if variant else choice.python or _USUAL_PYTHON,
        accelerator=kind,
        accelerator_from=kind_from,
        cuda_from="wheels" if has_wheels else None,
        cuda=find_cuda(builds) if kind == "gpu" else None,
        needs=needs,
        programs=programs,
        placement=place(program, reached, project) if program and reached else None,
        reached=reached,
        listings=listings,
        name=names[0].value if names else None,
    )


def _choose_accelerator(project: Project, listings: tuple[Listing, ...], folder: str) -> tuple[str, str | None]:
    """Chooses gpu if the chosen listing, or every exported environment or Dockerfile, asks for CUDA."""
    for listing in listings[:1]:
        for item in listing.packages:
            if item.package == "tensorflow-gpu" or "and-cuda" in item.requirement.extras:
                return "gpu", f"{item.place}: {item.value}"
        for item in listing.statements:
            if item.fact is Fact.GPU and item.certainty is Certainty.STATED:
                return "gpu", f"{item.place}: {item.value}"
    exported = {
        file: [item for item in rows if item.fact is Fact.GPU]
        for file, rows in project.statements.items()
        if file.endswith((".yml", ".yaml")) and any(item.fact is Fact.PINNED for item in rows)
    }
    docker = {
        file: [item for item in rows if item.fact is Fact.GPU]
        for file, rows in project.statements.items()
        if is_dockerfile(file) and (file.rpartition("/")[0] or ".") in {".", folder}
    }
    for files in (exported, docker):
        if files and all(files.values()):
            found = next(iter(files.values()))[0]
            return "gpu", f"{found.place}: {found.value}"
    return "cpu", None


def _resolve(
    choice: Choice, kind: str, kind_from: str | None, knowledge: Knowledge, *, given: bool
) -> tuple[Variant | None, str, str | None, Choice]:
    """Resolves the choice as `lock` does. If no base image fits, tries imgtool's default Python, then cpu."""
    error: str | None = None
    attempts = [(kind, choice.python), (kind, None), ("cpu", choice.python), ("cpu", None)]
    for accelerator, python in attempts[:2] if given else attempts:
        try:
            chosen = knowledge.resolve(choice.framework.key, choice.release, python, accelerator)
        except ValueError as problem:
            error = error or str(problem)
            continue
        if accelerator is not kind:
            kind_from = f"{kind_from}; cpu, since: {error}"
        variant = Variant(choice.framework, choice.release, chosen, accelerator)
        return variant, accelerator, kind_from, replace(choice, python=python)
    return None, kind, kind_from, choice
