"""Checks a job file, whoever wrote it, against the rules of its target. Each finding has a line and a column."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from training_imgtool.jobs import module_of
from training_imgtool.jobs.model import NOT_CHECKED, Finding, Path, Severity, first_of_each, format_path, get
from training_imgtool.jobs.rules.google import GCLOUD
from training_imgtool.jobs.rules.kubernetes import (
    TARGETS,
    find_meant_kind,
    known_kind,
    object_findings,
    unknown_kind,
)
from training_imgtool.jobs.rules.secrets import secret_findings
from training_imgtool.jobs.rules.slurm import is_script, script_findings
from training_imgtool.jobs.yamlio import Parsed, read, reread
from training_imgtool.model.targets import Target

_BOOLEANS = {  # targets whose readers differ from gcloud's YAML
    Target.COMPOSE: frozenset({"true", "false"}),
    Target.SKYPILOT: frozenset({"true", "false", "yes", "no", "on", "off"}),
}
_ECI = "k8s.aliyun.com/"  # prefix of annotations that only ECI's virtual nodes read
_COMPOSE_CONFIG = "docker compose config"
_OTHER_FILES = re.compile(
    r"required variable|not set here|no such file|env file"
)  # what another folder or environment may have
_PLACEHOLDER = re.compile(r"\$\{?[A-Za-z_]\w*\}?|<[^<>]+>|'(?:__\w+__|[A-Z][A-Z0-9_]*_(?:NAME|ID|PATH))'")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Message:
    """One finding with its place: `file:line:column`, 1-based."""

    file: str
    line: int
    column: int
    field: str
    severity: Severity
    message: str
    hint: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        source = f" [{self.source}]" if self.source else ""
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {field}{self.message}{source}"


def lint(
    text: str,
    file: str,
    *,
    allow_unknown: bool = False,
    region: str | None = None,
    strict: bool = False,
    require_digests: bool = False,
    answer: str | None = None,
) -> tuple[Message, ...]:
    """Finds all faults in a job file of any target, and returns them in the order of their lines.

    Args:
        text: the file's text: YAML or JSON.
        file: the file's name, for the places.
        allow_unknown: whether values that the tables lack (keys, machines, accelerators, regions) are only warnings.
        region: the job's region, for files of Google's services, where a flag sets the region.
        require_digests: whether an image without a digest is an error, and a document in which imgtool looked for none.
        strict: whether warnings are errors. In a file of which imgtool could check nothing, they always are.
        answer: the error of `sbatch --test-only` or `docker compose config`: empty if it printed none, None if it
            did not run.

    Raises:
        InputError: the text is not YAML.
    """
    messages: list[Message] = []
    if is_script(text):
        return tuple(_weighed(_lint_script(text, file, answer, require_digests), strict=strict))
    documents = read(text, file)
    if all(parsed.data is None for parsed in documents):
        nothing = Finding(path=(), message="is empty: expected a job file")
        return (_message(nothing, file, None),)
    for number, parsed in enumerate(documents):
        if parsed.data is None and len(documents) > 1:
            continue  # as kubectl does
        target = find_target(parsed.data)
        if number == 0 and len(documents) > 1 and target is None and _is_header(parsed.data):
            continue
        data = reread(parsed, _BOOLEANS[target]) if target in _BOOLEANS else parsed.data
        if target is not None and not hasattr(module_of(target), "judge"):
            findings = [_unchecked(target)]
        else:
            findings = [*parsed.findings, *_judge(data, allow_unknown=allow_unknown, region=region)]
        findings = [
            *(_weigh_answer(findings, answer) if target is Target.COMPOSE else findings),
            *secret_findings(data),
        ]
        if number == 0 and len(documents) > 1 and target is Target.VERTEX:
            findings.append(Finding(path=(), message=f"{len(documents)} documents: expected one", source=GCLOUD))
        findings = [_filled_in(finding, parsed.data) for finding in first_of_each(findings)]
        findings = [_unpinned(finding) if require_digests else finding for finding in findings]
        messages += [_message(_with_bare_text(finding, parsed), file, parsed) for finding in findings]
    unchecked = sum(message.message.startswith(NOT_CHECKED) for message in messages)
    strict = strict or unchecked == sum(parsed.data is not None for parsed in documents)
    return tuple(sorted(_weighed(messages, strict=strict), key=lambda each: (each.line, each.column, each.field)))


def _lint_script(text: str, file: str, answer: str | None, require_digests: bool) -> Iterator[Message]:
    """Finds faults in options and images, and adds sbatch's error. If sbatch accepts the script, returns no errors."""
    for line, finding in sorted(script_findings(text), key=lambda placed: placed[0]):
        if answer != "" or finding.severity is not Severity.ERROR:
            filled = _filled_in(finding, None)
            filled = _unpinned(filled) if require_digests else filled
            yield replace(_message(filled, file, None), line=line + 1)
    if answer:
        yield _message(Finding(path=(), message=answer, source="sbatch --test-only"), file, None)
    elif answer is None:
        message = "options only: imgtool checked #SBATCH options, images, secrets, torchrun's numbers, and nothing else"
        hint = f"`sbatch --test-only {file}` asks the cluster, and imgtool lint does the same where sbatch is on PATH"
        yield _message(Finding(path=(), message=message, hint=hint, severity=Severity.WARNING), file, None)


def _weigh_answer(findings: Iterable[Finding], answer: str | None) -> Iterator[Finding]:
    """Adds the error of `docker compose config`; if it accepts the file, leaves out errors against the schema."""
    yield from (finding for finding in findings if answer != "" or finding.severity is not Severity.ERROR)
    if answer:
        place = re.search(r"\b(?:services|networks|volumes|secrets|configs)[.\[][\w.\[\]-]*", answer)
        words = re.findall(r"[\w-]+", place[0]) if place else []
        path = tuple(int(word) if word.isdecimal() else word for word in words)
        severity = Severity.WARNING if _OTHER_FILES.search(answer) else Severity.ERROR
        yield Finding(path=path, message=answer, source=_COMPOSE_CONFIG, severity=severity)
    elif answer is None:
        message = "schema only: imgtool did not check values that the schema allows and Compose refuses"
        hint = "imgtool lint asks `docker compose config` where Docker has its plugin"
        yield Finding(path=(), message=message, hint=hint, severity=Severity.HINT)


def _weighed(messages: Iterable[Message], *, strict: bool) -> Iterator[Message]:
    for message in messages:
        heavier = strict and message.severity is Severity.WARNING
        yield replace(message, severity=Severity.ERROR) if heavier else message


def _judge(data: Any, *, allow_unknown: bool, region: str | None) -> Iterable[Finding]:
    if not isinstance(data, dict):
        return [Finding(path=(), message="expected a mapping at the top: a Job, a CustomJobSpec, a manifest …")]
    if data.get("kind") == "List" and isinstance(data.get("items"), list):
        return _items(data["items"], allow_unknown=allow_unknown)
    target, kind = find_target(data), known_kind(data)
    judge = module_of(target).judge if target else None
    if kind:
        return object_findings(data, kind, judge, target, allow_unknown=allow_unknown)
    if judge:
        return judge(data, allow_unknown=allow_unknown, region=region)
    findings = [*_check_unrecognized(data)]
    if meant := find_meant_kind(data.get("kind"), data.get("apiVersion")):  # all errors come together
        findings += _judge({**data, "kind": meant}, allow_unknown=allow_unknown, region=region)
    return findings


def _unchecked(target: Target) -> Finding:
    why = target.row.checked_by or f"imgtool has no rules for files of {target}"
    return Finding(path=(), message=f"{NOT_CHECKED}: {why}", severity=Severity.WARNING)


def find_target(data: Any) -> Target | None:
    """Returns the target of a job file; recognizes the target by the document's `kind` or its top-level keys."""
    if not isinstance(data, dict):
        return None
    if "kind" not in data:
        for target in Target:
            if any(sign in data for sign in target.row.signs):
                return target
    if any(isinstance(item, dict) and "TF_CONFIG" in item for item in data.values()):
        return Target.TF_CONFIG
    kind, annotations = known_kind(data), get(data, "metadata", "annotations")
    if kind == "Pod" and isinstance(annotations, dict) and any(str(key).startswith(_ECI) for key in annotations):
        return Target.ECI
    return TARGETS.get(kind) if kind else None


def _is_header(data: Any) -> bool:
    """Tells whether a document is the header that starts a SkyPilot file with several tasks."""
    return (
        isinstance(data, dict)
        and bool(data)
        and data.keys() <= {"name", "execution", "primary_tasks", "termination_delay"}
    )


def _items(items: list[Any], *, allow_unknown: bool) -> Iterator[Finding]:
    for index, item in enumerate(items):
        for finding in _judge(item, allow_unknown=allow_unknown, region=None):
            path: Path = ("items", index, *finding.path)
            yield replace(finding, path=path)


def _check_unrecognized(data: dict[str, Any]) -> Iterable[Finding]:
    """Explains why a document is not a job file: a top-level key is misspelt or missing, or `kind` is unknown."""
    others = {"kind": "apiVersion", "apiVersion": "kind"}
    signs = [others[key] for key in others if key in data] or [sign for target in Target for sign in target.row.signs]
    for key in data.keys() - others.keys():
        if close := difflib.get_close_matches(key, set(signs) - data.keys(), n=1):
            hint = f"did you mean {close[0]}?"
            return [Finding(path=(key,), message=f"{key!r} is not a key here", hint=hint, at_key=True)]
    if others.keys() & data.keys():
        return [unknown_kind(data.get("kind"), data.get("apiVersion"))]
    firsts = ", ".join(("apiVersion", *(target.row.signs[0] for target in Target if target.row.signs)))
    return [Finding(path=(), message=f"is not a job file that imgtool recognizes: expected one of {firsts} at the top")]


def _filled_in(finding: Finding, data: Any) -> Finding:
    """Turns an error about a placeholder (`${NAME}`, `<name>`), which users replace before they submit, into a hint."""
    value = _value_at(data, finding.path)
    texts = (finding.message, value if isinstance(value, str) else "")
    own = not finding.at_key and finding.source != _COMPOSE_CONFIG
    if not own or finding.severity is not Severity.ERROR or not any(map(_PLACEHOLDER.search, texts)):
        return finding
    return replace(finding, severity=Severity.HINT, message=f"not checked, as it is a placeholder: {finding.message}")


def _unpinned(finding: Finding) -> Finding:
    """Makes an error of a finding about an image without a digest, or about a document that imgtool did not check."""
    is_error = finding.is_unpinned or finding.message.startswith(NOT_CHECKED)
    return replace(finding, severity=Severity.ERROR) if is_error else finding


def _value_at(data: Any, path: Path) -> Any:
    for key in path:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return None
    return data


def _with_bare_text(finding: Finding, parsed: Parsed) -> Finding:
    """Adds a hint to quote a value that YAML reads differently from its text: `2.10` as 2.1, or `y` as true."""
    mark = parsed.marks.get(finding.path)
    if mark is None or mark.bare is None or "in quotes" not in (finding.hint or ""):
        return finding
    hint = f'write "{mark.bare}": gcloud reads YAML 1.1, in which this text without quotes means something else'
    return replace(finding, hint=hint)


def _message(finding: Finding, file: str, parsed: Parsed | None) -> Message:
    line, column = 1, 1
    for cut in range(len(finding.path) if parsed else -1, -1, -1):
        places = parsed.keys if parsed and finding.at_key and cut == len(finding.path) else parsed and parsed.marks
        mark = places.get(finding.path[:cut]) if places else None
        if mark is not None:
            line, column = mark.line, mark.column
            break
    return Message(
        file=file,
        line=line,
        column=column,
        field=format_path(finding.path),
        severity=finding.severity,
        message=finding.message,
        hint=finding.hint,
        source=finding.source,
    )
