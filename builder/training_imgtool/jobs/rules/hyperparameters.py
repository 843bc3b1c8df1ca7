"""Hyperparameter tuning: Vertex AI's HyperparameterTuningJob, and its rules.

`gcloud ai hp-tuning-jobs create --config` reads the file; display name, labels and KMS key are flags.
Source: the discovery document aiplatform.v1, revision 20261106; gcloud 528.0.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.model import Document, Finding, Path, Severity, without_none
from training_imgtool.model.job import Hyperparameters, Parameter

DEFAULT_METRIC = "training/hptuning/metric"  # the default metric of cloudml-hypertune
VALUES = {  # the field with a parameter's values, by its type
    "DOUBLE": "doubleValueSpec",
    "INTEGER": "integerValueSpec",
    "CATEGORICAL": "categoricalValueSpec",
    "DISCRETE": "discreteValueSpec",
}
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_NUMERIC = {"DOUBLE", "INTEGER", "DISCRETE"}


def number_errors(spec: Hyperparameters) -> Iterator[FieldError]:
    """Finds values that should be numbers but are not; the spec stores all values as text."""
    for index, param in enumerate(spec.params):
        if param.type not in _NUMERIC:
            continue
        field = f"job.hyperparameters.params[{index}]"
        for name, text in (("min", param.min), ("max", param.max)):
            if text is not None and _number(text) is None:
                yield FieldError(f"{text!r} is not a number", field=f"{field}.{name}")
        for place, text in enumerate(param.values):
            if _number(text) is None:
                yield FieldError(f"{text!r} is not a number", field=f"{field}.values[{place}]")


def _number(text: str | None) -> int | float | None:
    if text is None or not _NUMBER.match(text):
        return None
    value = float(text)
    return int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else value if abs(value) < float("inf") else None


def range_findings(low: Any, high: Any, scale: Any, path: Path) -> Iterator[Finding]:
    """Checks that the smallest value is not above the largest, and that the scale allows it."""
    if not (isinstance(low, int | float) and isinstance(high, int | float)):
        return
    if low > high:
        yield Finding(path=(*path, "minValue"), message=f"{low} is above maxValue {high}")
    if scale in {"UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"} and low <= 0:
        yield Finding(path=(*path, "minValue"), message=f"{low}: a logarithmic scale needs more than 0")


def value_findings(values: Any, path: Path) -> Iterator[Finding]:
    """Checks that discrete values increase, and that there are not too many of them."""
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        return
    if any(after <= before for before, after in pairwise(values)):
        message = "are not in strictly increasing order, which the API's reference asks for"
        yield Finding(path=path, message=message, severity=Severity.WARNING)


def tuning_job(spec: Hyperparameters, trial: Document) -> Document:
    """Makes the HyperparameterTuningJob without name, labels and KMS key; `trial` is each trial's CustomJobSpec."""
    study = {
        "metrics": [{"metricId": spec.metric or DEFAULT_METRIC, "goal": spec.goal}],
        "parameters": [_parameter(param) for param in spec.params],
        "algorithm": spec.algorithm,
        "medianAutomatedStoppingSpec": {"useElapsedDuration": False} if spec.early_stopping else None,
    }
    return without_none(
        {
            "studySpec": without_none(study),
            "maxTrialCount": spec.max_trials or 1,
            "parallelTrialCount": spec.max_parallel_trials or 1,
            "maxFailedTrialCount": spec.max_failed_trials,
            "trialJobSpec": trial,
        }
    )


def _parameter(param: Parameter) -> Document:
    numeric = param.type in _NUMERIC
    values: Document = {"minValue": _number(param.min), "maxValue": _number(param.max)}
    if param.values:
        values = {"values": [_number(text) if numeric else text for text in param.values]}
    elif param.type == "INTEGER":
        values = {"minValue": param.min, "maxValue": param.max}  # int64
    scale = None if param.scale == "NONE" else param.scale
    return without_none({"parameterId": param.name, VALUES[param.type]: without_none(values), "scaleType": scale})


def study_findings(job: Mapping[str, Any]) -> Iterator[Finding]:
    """Finds faults in a HyperparameterTuningJob, except in its keys, enums and trial job."""
    trials, parallel = job.get("maxTrialCount"), job.get("parallelTrialCount")
    if isinstance(trials, int) and isinstance(parallel, int) and parallel > trials:
        message = f"{parallel} parallel trials of only {trials} in all"
        yield Finding(path=("parallelTrialCount",), message=message, severity=Severity.WARNING)
    study = job.get("studySpec") or {}
    grid = study.get("algorithm") == "GRID_SEARCH"
    for index, item in enumerate(study.get("parameters") or []):
        yield from _parameter_findings(item or {}, ("studySpec", "parameters", index), grid=grid)


def _parameter_findings(item: Mapping[str, Any], path: Path, *, grid: bool) -> Iterator[Finding]:
    kinds = [key for key in VALUES.values() if key in item]
    if len(kinds) != 1:
        return
    if kinds[0] == "categoricalValueSpec" and item.get("scaleType") not in {None, "SCALE_TYPE_UNSPECIFIED"}:
        yield Finding(path=(*path, "scaleType"), message="does not go with a CATEGORICAL parameter")
    if grid and kinds[0] == "doubleValueSpec":
        yield Finding(path=path, message="GRID_SEARCH takes no DOUBLE parameter")
    values = item[kinds[0]]
    low, high = (_as_number(values.get(key)) for key in ("minValue", "maxValue"))
    yield from range_findings(low, high, item.get("scaleType"), (*path, kinds[0]))
    yield from value_findings(values.get("values"), (*path, kinds[0], "values"))


def _as_number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else value
