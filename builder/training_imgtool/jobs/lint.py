"""The rules of every target on a file that someone else wrote, each finding with its place in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

from training_imgtool.jobs.compose_rules import compose_findings, tf_config_findings
from training_imgtool.jobs.google.ai_platform_rules import job_findings
from training_imgtool.jobs.google.common import GCLOUD
from training_imgtool.jobs.google.vertex_rules import (
    custom_job_findings,
    custom_job_spec_findings,
    tuning_job_findings,
)
from training_imgtool.jobs.images.layers import LayerTypes, layer_findings
from training_imgtool.jobs.kubernetes.rules import object_findings
from training_imgtool.jobs.model import Finding, Path, Severity, first_of_each, format_path
from training_imgtool.jobs.shapes import shape_keys
from training_imgtool.jobs.yamlio import Parsed, read
from training_imgtool.yamlfile.reader import read_bytes

_PLACEHOLDER = re.compile(r"\$\{?[A-Za-z_]\w*\}?|<[^<>]+>")
_BY_KEY: Mapping[str, Callable[..., Iterable[Finding]]] = {  # a key at the top that tells the target
    "apiVersion": object_findings,
    "kind": object_findings,
    "services": compose_findings,
}
_GOOGLE_BY_KEY: Mapping[str, Callable[..., Iterable[Finding]]] = {
    "workerPoolSpecs": custom_job_spec_findings,
    "jobSpec": custom_job_findings,
    "studySpec": tuning_job_findings,
    "trialJobSpec": tuning_job_findings,
    "trainingInput": job_findings,
}


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
    layer_types: LayerTypes | None = None,
) -> tuple[Message, ...]:
    """Everything wrong with a job file of any target, in the order of the file.

    Args:
        text: the file's text, YAML or JSON.
        file: its name, for the places.
        allow_unknown: what the tables lack (keys, machines, accelerators, regions) is a warning.
        region: where the job will run, for files of Google's services that leave it to a flag.
        strict: warnings are errors.
        layer_types: asks a registry for the images, as `layer_findings` does; None asks nobody.

    Raises:
        InputError: the text is not YAML.
    """
    messages: list[Message] = []
    documents = read(text, file)
    if not documents:
        nothing = Finding(path=(), message="is empty: expected a job file")
        return (_message(nothing, file, None),)
    for parsed in documents:
        findings = [*parsed.findings, *_judge(parsed.data, allow_unknown=allow_unknown, region=region)]
        findings = [_filled_in(finding, parsed.data) for finding in first_of_each(findings)]
        findings += layer_findings(parsed.data, layer_types) if layer_types else ()
        if strict:
            findings = [replace(f, severity=Severity.ERROR) if f.severity is Severity.WARNING else f for f in findings]
        messages += [_message(_with_bare_text(finding, parsed), file, parsed) for finding in findings]
    return tuple(sorted(messages, key=lambda message: (message.line, message.column, message.field)))


def lint_file(
    path: File,
    *,
    allow_unknown: bool = False,
    region: str | None = None,
    strict: bool = False,
    layer_types: LayerTypes | None = None,
) -> tuple[Message, ...]:
    """`lint` of a file; raises InputError also when the file cannot be read."""
    text = read_bytes(path).decode("utf-8", errors="replace")
    return lint(text, str(path), allow_unknown=allow_unknown, region=region, strict=strict, layer_types=layer_types)


def _judge(data: Any, *, allow_unknown: bool, region: str | None) -> Iterable[Finding]:
    if not isinstance(data, dict):
        return [Finding(path=(), message="expected a mapping at the top: a Job, a CustomJobSpec, a manifest …")]
    if data.get("kind") == "List" and isinstance(data.get("items"), list):
        return _items(data["items"], allow_unknown=allow_unknown)
    for key, google_rules in _GOOGLE_BY_KEY.items():
        if key in data:
            return google_rules(data, region=region, allow_unknown=allow_unknown, foreign=True)
    for key, rules in _BY_KEY.items():
        if key in data:
            return rules(data, allow_unknown=allow_unknown)
    if "cluster" in data or any(isinstance(item, dict) and "TF_CONFIG" in item for item in data.values()):
        return tf_config_findings(data)
    return _check_unwrapped(data)


def _items(items: list[Any], *, allow_unknown: bool) -> Iterator[Finding]:
    for index, item in enumerate(items):
        for finding in _judge(item, allow_unknown=allow_unknown, region=None):
            path: Path = ("items", index, *finding.path)
            yield replace(finding, path=path)


def _check_unwrapped(data: dict[str, Any]) -> Iterable[Finding]:
    training_keys = {key.replace("_", "").lower() for key in shape_keys("TrainingInput")}
    inside = [key for key in data if key.replace("_", "").lower() in training_keys]
    if inside:
        message = "belongs under trainingInput: without it gcloud says 'Non-custom jobs must have packages'"
        return [Finding(path=(key,), message=message, source=GCLOUD) for key in inside]
    keys = "trainingInput, workerPoolSpecs, apiVersion, services or cluster"
    return [Finding(path=(), message=f"is not a job file that imgtool recognizes: expected one of {keys} at the top")]


def _filled_in(finding: Finding, data: Any) -> Finding:
    """An error about `${NAME}` or `<name>` is none: somebody fills it in before the file is submitted."""
    value = _value_at(data, finding.path)
    texts = (finding.message, value if isinstance(value, str) else "")
    if finding.severity is not Severity.ERROR or not any(map(_PLACEHOLDER.search, texts)):
        return finding
    return replace(finding, severity=Severity.HINT, message=f"not checked, since it is filled in: {finding.message}")


def _value_at(data: Any, path: Path) -> Any:
    for key in path:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return None
    return data


def _with_bare_text(finding: Finding, parsed: Parsed) -> Finding:
    """Adds what stands in the file where YAML makes something else of it: `2.10` is 2.1, `y` is true."""
    mark = parsed.marks.get(finding.path)
    if mark is None or mark.bare is None or "in quotes" not in (finding.hint or ""):
        return finding
    hint = f'write "{mark.bare}": without quotes YAML 1.1, which gcloud reads, takes it for something else'
    return replace(finding, hint=hint)


def _message(finding: Finding, file: str, parsed: Parsed | None) -> Message:
    line, column = 1, 1
    for cut in range(len(finding.path), -1, -1):
        mark = parsed.marks.get(finding.path[:cut]) if parsed else None
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
