"""Finds what the API server refuses in a Job, beyond the shape of its keys.

Source: kubernetes/kubernetes pkg/apis/batch/validation (1.34).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.model import Finding, Path, get

_MOST_PODS = 100_000  # of an Indexed Job
_NEEDS_INDEXES = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")


def job_findings(job: Mapping[str, Any], path: Path, *, of_jobset: bool) -> Iterator[Finding]:
    """Checks the policies of a Job, and its restart policy, which must let the Pods end.

    Args:
        job: the Job's spec, without values of a wrong kind.
        path: its path in the document.
        of_jobset: whether JobSet's webhook sets defaults: completionMode Indexed, restartPolicy OnFailure.
    """
    restart = get(job, "template", "spec", "restartPolicy")
    if restart not in {"Never", "OnFailure", *([None] if of_jobset else [])}:
        message = f"{restart or 'is missing'}: a Job takes Never or OnFailure"
        yield Finding(path=(*path, "template", "spec", "restartPolicy"), message=message)
    elif job.get("podFailurePolicy") is not None and restart != "Never":
        message = (
            f"does not go with restartPolicy {restart}: expected Never" if restart else "needs restartPolicy: Never"
        )
        yield Finding(path=(*path, "podFailurePolicy"), message=message)
    refused = _refuse_keys(job, indexed=job.get("completionMode", "Indexed" if of_jobset else None) == "Indexed")
    yield from (Finding(path=(*path, key), message=message) for key, message in refused)
    for policy, check in (("successPolicy", _success_rule), ("podFailurePolicy", _failure_rule)):
        for index, rule in enumerate(get(job, policy, "rules") or []):
            yield from check(rule or {}, (*path, policy, "rules", index), job)


def _refuse_keys(job: Mapping[str, Any], *, indexed: bool) -> Iterator[tuple[str, str]]:
    """Yields the keys that do not go with the others, each with the reason."""
    completions, at_once, most = (job.get(key) for key in ("completions", "parallelism", "maxFailedIndexes"))
    if job.get("completionMode") == "Indexed" and completions is None and at_once is not None:
        yield "completions", "is missing: an Indexed Job needs it"
    if indexed and (at_once or 0) > _MOST_PODS:
        yield "parallelism", f"{at_once}: an Indexed Job takes {_MOST_PODS} at most"
    yield from ((key, "needs completionMode: Indexed") for key in _NEEDS_INDEXES if not indexed and key in job)
    if most is not None and "backoffLimitPerIndex" not in job:
        yield "maxFailedIndexes", "needs backoffLimitPerIndex"
    if most is not None and completions is not None and most > completions:
        yield "maxFailedIndexes", f"{most}: expected {completions} at most, the Job's completions"
    if "podFailurePolicy" in job and job.get("podReplacementPolicy") == "TerminatingOrFailed":
        yield "podReplacementPolicy", "does not go with podFailurePolicy: expected Failed"


def _success_rule(rule: Mapping[str, Any], path: Path, job: Mapping[str, Any]) -> Iterator[Finding]:
    completions, count, indexes = job.get("completions"), rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        yield Finding(path=path, message="expected one of succeededCount, succeededIndexes")
    if completions is not None and any(int(index) >= completions for index in re.findall("[0-9]+", indexes or "")):
        message = f"{indexes!r}: expected indexes below {completions}, the Job's completions"
        yield Finding(path=(*path, "succeededIndexes"), message=message)
    if completions is not None and (count or 0) > completions:
        yield Finding(path=(*path, "succeededCount"), message=f"{count}: expected {completions} at most")


def _failure_rule(rule: Mapping[str, Any], path: Path, job: Mapping[str, Any]) -> Iterator[Finding]:
    codes = rule.get("onExitCodes")
    if (codes is None) is not bool(rule.get("onPodConditions")):
        yield Finding(path=path, message="expected either onExitCodes or onPodConditions")
    if rule.get("action") == "FailIndex" and job.get("backoffLimitPerIndex") is None:
        yield Finding(path=(*path, "action"), message="FailIndex needs backoffLimitPerIndex")
    if codes is None:
        return
    pod, name = get(job, "template", "spec") or {}, codes.get("containerName")
    known = [get(item, "name") for key in ("containers", "initContainers") for item in pod.get(key) or [] if item]
    if name is not None and name not in known:
        message = f"{name!r} is none of the Pod's containers: {', '.join(map(str, known))}"
        yield Finding(path=(*path, "onExitCodes", "containerName"), message=message)
    values = [value for value in codes.get("values") or [] if isinstance(value, int)]
    if codes.get("operator") == "In" and 0 in values:
        yield Finding(path=(*path, "onExitCodes", "values"), message="0 does not go with In: it is no failure")
    if values != sorted(set(values)):
        message = f"{values}: expected ascending numbers, each of them once"
        yield Finding(path=(*path, "onExitCodes", "values"), message=message)
