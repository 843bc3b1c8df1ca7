"""Writes the keys of a proposed spec as YAML. Comments say where values come from, or that they are guesses."""

from __future__ import annotations

import json
import re

from packaging.specifiers import SpecifierSet

from imgtool_project_reader.packages import Line
from imgtool_project_reader.programs import list_words
from imgtool_project_reader.proposal import Proposal
from imgtool_project_reader.statement import Certainty, Fact, Statement, is_dockerfile
from training_imgtool.model.frameworks import FRAMEWORKS, Framework

_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")


def framework_of(proposal: Proposal) -> tuple[Framework, str]:
    """Returns the project's framework and the framework's release."""
    return FRAMEWORKS[proposal.choice.framework.key], proposal.choice.release


def write_framework(proposal: Proposal, *, given: bool) -> str:
    """Writes the key of the framework, such as `tensorflow`, with a comment that says where the release comes from."""
    choice, (framework, release) = proposal.choice, framework_of(proposal)
    rows = [row.statement for row in choice.rows if row.statement.fact == framework.title and row.followed]
    far = next((item for item in rows if not SpecifierSet(item.value).contains(release)), None)
    table = f"; imgtool compat {framework.key} lists"
    if given:
        said = f"Python, CUDA and the base image follow from it: imgtool compat {framework.key}"
    elif choice.source is None and (said := next((f"{row.place} ({row.value})" for row in rows if row.value), "")):
        said = f"a guess: {said} allows all newer ones{table} them"
    elif choice.source is None:
        said = f"a guess: no file names a release{table} them"
    elif far:
        said = f"the nearest to {far.place}: {far.value}; imgtool compat lists the releases"
    else:
        limit = next((f" ({row.value})" for row in rows if row.place == choice.source), "")
        said = f"from {choice.source}" + (
            "" if choice.is_exact else f"{limit}; which of those that it allows is a guess"
        )
    return f'{framework.key}: "{release}"  # {said}\n'


def write_cuda(proposal: Proposal) -> str:
    """Writes the key `cuda` of a build that a file names, as a comment if that file may mean an older release."""
    if proposal.cuda is None:
        return ""
    return f'{"" if proposal.choice.is_exact else "# "}cuda: "{proposal.cuda.value}"  # from {proposal.cuda.place}\n'


def write_python(proposal: Proposal) -> str:
    """Writes the key `python`, with a comment that says where the version comes from."""
    choice = proposal.choice
    rows = [row for row in choice.rows if row.statement.fact is Fact.PYTHON]
    if choice.python is None:
        firm = [row.statement for row in rows if not row.followed and row.statement.certainty is Certainty.STATED]
        has_none = f"{framework_of(proposal)[0].title} {framework_of(proposal)[1]} has no wheel for what"
        said = f"  # {has_none} {firm[0].place} says: {firm[0].value}" if firm else ""
        return f'# python: "{proposal.python}"{said}\n'
    if not any(row.followed for row in rows):
        return f'python: "{choice.python}"  # the nearest to {rows[0].statement.place}: {rows[0].statement.value}\n'
    said = ", ".join(dict.fromkeys(f"{row.statement.place} ({row.statement.value})" for row in rows if row.followed))
    return f'python: "{choice.python}"  # from {said[:200]}\n'


def write_needs(proposal: Proposal) -> str:
    """Writes the keys that name Debian and Python packages."""
    needs, framework = proposal.needs, framework_of(proposal)[0]
    text = ""
    if needs.system:
        names = ", ".join(name for name, _ in needs.system)
        said = "; ".join(dict.fromkeys(place for _, place in needs.system))
        text += f"system_packages: [{names}]  # {said}\n"
    if needs.builds_only:
        text += f"# the project installs, too: {', '.join(needs.builds_only[:12])}\n"
    if needs.requirements:
        is_plain = _PLAIN_WORD.fullmatch(needs.requirements)
        name = needs.requirements if is_plain else json.dumps(needs.requirements, ensure_ascii=False)
        text += f"requirements: {name}  # resolved together with {framework.title}, and locked in image.lock\n"
    if needs.extras:
        text += f"extras: [{', '.join(needs.extras)}]\n"
    if needs.lines:
        why = f"  # {_one_line(needs.why_lines)}" if needs.why_lines else ""
        text += f"python_packages:{why}\n" + "".join(map(_write_line, needs.lines))
    text += "".join(f"# left out a limit: {what}: {_one_line(why)}\n" for what, why in needs.dropped)
    if needs.unknown:
        cause = "# missing, unless another package brings them: the packages of these imports:"
        text += f"{cause} {', '.join(needs.unknown[:12])}\n"
    return text


def _write_line(line: Line) -> str:
    said = f"{'a guess: ' if line.guess else ''}{_one_line(line.place)}"
    return f"  - {json.dumps(line.text, ensure_ascii=False)}  # {said}\n"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())[:160]


def write_trainer(proposal: Proposal) -> str:
    """Writes the key `trainer`, which names the program to start."""
    placement = proposal.placement
    if placement is None:
        return "# trainer: FOLDER/FILE.py\n"
    keys = placement.trainer
    value = (
        keys["source"]
        if set(keys) == {"source"}
        else f"{{{', '.join(f'{key}: {text}' for key, text in keys.items())}}}"
    )
    others = [other.path for other in proposal.programs[1:5]]
    return f"trainer: {value}" + (f"  # or {', '.join(others)}" if others else "") + "\n"


def write_args(proposal: Proposal) -> str:
    """Writes `args` with the arguments from the project's Dockerfile; arguments from other files become a comment."""
    program = proposal.program
    if program is None:
        return "# args: []\n"
    options = ", ".join(f"{item.name}{' (required)' if item.required else ''}" for item in program.source.options[:12])
    shown = f"  # its options: {options}" if options else ""
    for command in sorted(program.commands, key=_is_for_more):
        words = [*list_words(command)]
        words = words[2:] if words[:1] == ["-m"] else words[1:]
        if not words or "--help" in words or "-h" in words or not all(word.isprintable() for word in words):
            continue
        if is_dockerfile(command.file) and not any("$" in word for word in words):
            return (
                f"args: {json.dumps(words, ensure_ascii=False)}  # from {command.place}{shown.replace('  # ', '; ')}\n"
            )
        if command.certainty is Certainty.STATED:
            return f"# args: {json.dumps(words, ensure_ascii=False)}  # {command.place}{shown.replace('  # ', '; ')}\n"
    return f"# args: []{shown}\n"


def _is_for_more(command: Statement) -> bool:
    """Returns whether a command in the project's files may start the program for something other than training."""
    return not is_dockerfile(command.file) and not re.search(r"(?i)\btrain", " ".join(list_words(command)[1:]))
