"""Vertex AI's HyperparameterTuningJob: from the spec's `job.hyperparameters`, and its rules.

`gcloud ai hp-tuning-jobs create --config` takes one; display name, labels and key travel as flags.
Source: the aiplatform.v1 discovery document, revision 20261106, and gcloud 528.0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.core.errors import FieldError
from training_imgtool.jobs.google.hyperparameters import range_findings, value_findings
from training_imgtool.jobs.model import Document, Finding, Path, Severity, without_none
from training_imgtool.spec.job import Hyperparameters

DEFAULT_METRIC = "training/hptuning/metric"  # what cloudml-hypertune reports unless told otherwise
_VALUES = {
    "DOUBLE": "doubleValueSpec",
    "INTEGER": "integerValueSpec",
    "CATEGORICAL": "categoricalValueSpec",
    "DISCRETE": "discreteValueSpec",
}


def tuning_job(spec: Mapping[str, Any], trial: Document) -> Document:
    """The HyperparameterTuningJob without its name, labels and key.

    Args:
        spec: AI Platform's HyperparameterSpec, as `hyperparameters.tuning` writes it.
        trial: the CustomJobSpec of every trial.
    """
    return without_none(
        {
            "studySpec": without_none(
                {
                    "metrics": [
                        {"metricId": spec.get("hyperparameterMetricTag") or DEFAULT_METRIC, "goal": spec["goal"]}
                    ],
                    "parameters": [_parameter(param) for param in spec["params"]],
                    "algorithm": spec.get("algorithm"),
                    "medianAutomatedStoppingSpec": {"useElapsedDuration": False}
                    if spec.get("enableTrialEarlyStopping")
                    else None,
                }
            ),
            "maxTrialCount": spec.get("maxTrials") or 1,
            "parallelTrialCount": spec.get("maxParallelTrials") or 1,
            "maxFailedTrialCount": spec.get("maxFailedTrials"),
            "trialJobSpec": trial,
        }
    )


def tuning_errors(spec: Hyperparameters) -> Iterator[FieldError]:
    """What of the spec a HyperparameterTuningJob cannot say."""
    if spec.resume_from:
        message = "Vertex AI cannot continue the trials of another job"
        yield FieldError(message, field="job.hyperparameters.resume_from")


def tuning_names(spec: Hyperparameters) -> dict[str, str]:
    """Paths of the document and the spec's keys that they come from."""
    here = "job.hyperparameters"
    names = {
        "studySpec": here,
        "studySpec.algorithm": f"{here}.algorithm",
        "studySpec.metrics[0].metricId": f"{here}.metric",
        "studySpec.metrics[0].goal": f"{here}.goal",
        "maxTrialCount": f"{here}.max_trials",
        "parallelTrialCount": f"{here}.max_parallel_trials",
        "maxFailedTrialCount": f"{here}.max_failed_trials",
    }
    for index, param in enumerate(spec.params):
        there, field = f"studySpec.parameters[{index}]", f"{here}.params[{index}]"
        values = f"{there}.{_VALUES.get(param.type, 'values')}"
        names |= {there: field, f"{there}.parameterId": f"{field}.name", f"{there}.scaleType": f"{field}.scale"}
        names |= {values: field, f"{values}.minValue": f"{field}.min", f"{values}.maxValue": f"{field}.max"}
        names[f"{values}.values"] = f"{field}.values"
    return names


def study_findings(job: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with a HyperparameterTuningJob beyond its keys, enums and trial job."""
    trials, parallel = job.get("maxTrialCount"), job.get("parallelTrialCount")
    for key, count in (("maxTrialCount", trials), ("parallelTrialCount", parallel)):
        if isinstance(count, int) and count < 1:
            yield Finding(path=(key,), message=f"{count}: expected 1 or more")
    if isinstance(trials, int) and isinstance(parallel, int) and parallel > trials:
        message = f"{parallel} at once of {trials} trials in all"
        yield Finding(path=("parallelTrialCount",), message=message, severity=Severity.WARNING)
    study = job.get("studySpec")
    if isinstance(study, dict):
        yield from _study(study, ("studySpec",))


def _study(study: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    for key, name in (("metrics", "metricId"), ("parameters", "parameterId")):
        items = study.get(key)
        if isinstance(items, list) and not items:
            yield Finding(path=(*path, key), message="is empty: expected at least one")
        seen: set[str] = set()
        for index, item in enumerate(items if isinstance(items, list) else []):
            text = item.get(name) if isinstance(item, dict) else None
            if isinstance(text, str):
                where = (*path, key, index, name)
                if not text or any(character.isspace() for character in text):
                    yield Finding(path=where, message=f"{text!r}: expected a name without spaces")
                if text in seen:
                    yield Finding(path=where, message=f"{text!r} appears twice")
                seen.add(text)
    parameters = study.get("parameters")
    for index, item in enumerate(parameters if isinstance(parameters, list) else []):
        if isinstance(item, dict):
            grid = study.get("algorithm") == "GRID_SEARCH"
            yield from _parameter_findings(item, (*path, "parameters", index), grid=grid)


def _parameter_findings(item: Mapping[str, Any], path: Path, *, grid: bool) -> Iterator[Finding]:
    kinds = [key for key in _VALUES.values() if key in item]
    if len(kinds) != 1:
        yield Finding(path=path, message=f"expected exactly one of {', '.join(_VALUES.values())}")
        return
    if kinds[0] == "categoricalValueSpec" and item.get("scaleType") not in {None, "SCALE_TYPE_UNSPECIFIED"}:
        yield Finding(path=(*path, "scaleType"), message="does not go with a CATEGORICAL parameter")
    if grid and kinds[0] == "doubleValueSpec":
        yield Finding(path=path, message="GRID_SEARCH takes no DOUBLE parameter")
    values = item[kinds[0]]
    if isinstance(values, dict):
        low, high = (_as_number(values.get(key)) for key in ("minValue", "maxValue"))
        yield from range_findings(low, high, item.get("scaleType"), (*path, kinds[0]))
        yield from value_findings(values.get("values"), (*path, kinds[0], "values"))


def _as_number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else value


def _parameter(param: Mapping[str, Any]) -> Document:
    kind = param["type"]
    values = {key: param[key] for key in ("minValue", "maxValue") if key in param}
    listed = param.get("categoricalValues") or param.get("discreteValues")
    if listed:
        values = {"values": listed}
    elif kind == "INTEGER":
        values = {key: str(value) for key, value in values.items()}  # int64
    scale = param.get("scaleType")
    return without_none(
        {"parameterId": param["parameterName"], _VALUES[kind]: values, "scaleType": None if scale == "NONE" else scale}
    )
