"""Hyperparameter tuning: from the spec to AI Platform's HyperparameterSpec, and its rules.

Source: the ml.v1 discovery document, revision 20251213.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from training_imgtool.core.errors import FieldError
from training_imgtool.jobs.model import Document, Finding, Path, Severity, without_none
from training_imgtool.spec.job import Hyperparameters, Parameter

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_NUMERIC = {"DOUBLE", "INTEGER", "DISCRETE"}
_VALUE_KEYS = ("minValue", "maxValue", "categoricalValues", "discreteValues")
_KEYS_OF = {
    "DOUBLE": ("minValue", "maxValue"),
    "INTEGER": ("minValue", "maxValue"),
    "CATEGORICAL": ("categoricalValues",),
    "DISCRETE": ("discreteValues",),
}


def tuning(spec: Hyperparameters) -> Document:
    """The HyperparameterSpec."""
    return without_none(
        {
            "goal": spec.goal,
            "params": [_param(param) for param in spec.params],
            "maxTrials": spec.max_trials,
            "maxParallelTrials": spec.max_parallel_trials,
            "maxFailedTrials": spec.max_failed_trials,
            "hyperparameterMetricTag": spec.metric,
            "resumePreviousJobId": spec.resume_from,
            "enableTrialEarlyStopping": spec.early_stopping,
            "algorithm": spec.algorithm,
        }
    )


def number_errors(spec: Hyperparameters) -> Iterator[FieldError]:
    """Values that should be numbers and are not: they are text in the spec."""
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


def spec_names(spec: Hyperparameters | None) -> dict[str, str]:
    """Document paths below `trainingInput` and the spec's keys that they come from."""
    names = {"hyperparameters": "job.hyperparameters"}
    top = {
        "maxTrials": "max_trials",
        "maxParallelTrials": "max_parallel_trials",
        "maxFailedTrials": "max_failed_trials",
        "hyperparameterMetricTag": "metric",
        "resumePreviousJobId": "resume_from",
        "enableTrialEarlyStopping": "early_stopping",
    }
    names |= {f"hyperparameters.{there}": f"job.hyperparameters.{here}" for there, here in top.items()}
    of_param = {
        "parameterName": "name",
        "minValue": "min",
        "maxValue": "max",
        "categoricalValues": "values",
        "discreteValues": "values",
        "scaleType": "scale",
    }
    for index in range(len(spec.params) if spec else 0):
        for there, here in of_param.items():
            names[f"hyperparameters.params[{index}].{there}"] = f"job.hyperparameters.params[{index}].{here}"
    return names


def _param(param: Parameter) -> Document:
    numeric = param.type in _NUMERIC
    values: list[Any] = [_number(text) if numeric else text for text in param.values]
    return without_none(
        {
            "parameterName": param.name,
            "type": param.type,
            "minValue": _number(param.min),
            "maxValue": _number(param.max),
            "discreteValues" if numeric else "categoricalValues": values,
            "scaleType": param.scale,
        }
    )


def _number(text: str | None) -> int | float | None:
    if text is None or not _NUMBER.match(text):
        return None
    value = float(text)
    return int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else value if abs(value) < float("inf") else None


def tuning_findings(spec: Any, path: Path) -> Iterator[Finding]:
    """What is wrong with a HyperparameterSpec beyond its keys and enums."""
    if not isinstance(spec, dict):
        return
    params = spec.get("params")
    if not spec.get("resumePreviousJobId"):  # Google's page on resuming gives neither: the job takes the other's
        for key in ("goal", "params"):
            if spec.get(key) is None:
                yield Finding(path=path, message=f"{key!r} is missing")
    if isinstance(params, list) and not params:
        yield Finding(path=(*path, "params"), message="is empty: expected at least one hyperparameter")
    trials, parallel = spec.get("maxTrials", 1), spec.get("maxParallelTrials", 1)
    if isinstance(trials, int) and isinstance(parallel, int) and parallel > trials:
        message = f"{parallel} at once of {trials} trials in all"
        yield Finding(path=(*path, "maxParallelTrials"), message=message, severity=Severity.WARNING)
    names: set[str] = set()
    for index, param in enumerate(params if isinstance(params, list) else []):
        if isinstance(param, dict):
            yield from _parameter(param, (*path, "params", index), grid=spec.get("algorithm") == "GRID_SEARCH")
            name = param.get("parameterName")
            if isinstance(name, str) and name in names:
                yield Finding(path=(*path, "params", index, "parameterName"), message=f"{name!r} appears twice")
            names.add(str(name))


def _parameter(param: Mapping[str, Any], path: Path, *, grid: bool) -> Iterator[Finding]:
    kind, scale = param.get("type"), param.get("scaleType")
    wanted = _KEYS_OF.get(str(kind))
    if wanted is None:
        return
    for key in _VALUE_KEYS:
        if key in wanted and key not in param:
            yield Finding(path=(*path, key), message=f"is missing: a {kind} parameter has it")
        elif key not in wanted and key in param:
            message = f"does not go with a {kind} parameter"
            yield Finding(path=(*path, key), message=message, severity=Severity.WARNING)
    if kind == "CATEGORICAL" and scale not in {None, "NONE"}:
        message = "does not go with a CATEGORICAL parameter"
        yield Finding(path=(*path, "scaleType"), message=message, severity=Severity.WARNING)
    if grid and kind == "DOUBLE":
        yield Finding(path=(*path, "type"), message="GRID_SEARCH takes no DOUBLE parameter")
    yield from range_findings(param.get("minValue"), param.get("maxValue"), scale, path)
    yield from value_findings(param.get("discreteValues"), (*path, "discreteValues"))


def range_findings(low: Any, high: Any, scale: Any, path: Path) -> Iterator[Finding]:
    """Whether a smallest and a largest value go together and with the scale."""
    if not (isinstance(low, int | float) and isinstance(high, int | float)):
        return
    if low > high:
        yield Finding(path=(*path, "minValue"), message=f"{low} is above maxValue {high}")
    if scale in {"UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"} and low <= 0:
        yield Finding(path=(*path, "minValue"), message=f"{low}: a logarithmic scale needs more than 0")


def value_findings(values: Any, path: Path) -> Iterator[Finding]:
    """Whether discrete values increase and are not too many."""
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        return
    if any(after <= before for before, after in pairwise(values)):
        message = "are not in strictly increasing order, as the API's reference says that they should be"
        yield Finding(path=path, message=message, severity=Severity.WARNING)
    if len(values) > 1000:
        yield Finding(path=path, message=f"{len(values)} values: expected 1000 at most")
