"""What the JobSet webhook refuses, after the defaults that it sets itself.

Source: kubernetes-sigs/jobset v0.12.0, pkg/webhooks/jobset_webhook.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.kubernetes import names
from training_imgtool.jobs.kubernetes.pod_rules import template_findings
from training_imgtool.jobs.model import Finding, Path, Severity, get

_JOBS: Path = ("spec", "replicatedJobs")
_RULE_NAME = re.compile(r"(?=.{1,128}\Z)[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z")
_MANAGER = re.compile(r"[^/]+/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+\Z")
_REASONS = (
    "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy",
)  # fmt: skip


def jobset_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything wrong with a JobSet beyond its keys and kinds."""
    spec = document.get("spec")
    jobs = get(document, "spec", "replicatedJobs")
    if not isinstance(spec, dict) or not isinstance(jobs, list):
        message = "is missing: the JobSet runs nothing"
        yield Finding(path=_JOBS, message=message, severity=Severity.WARNING)
        return
    by_name = {job["name"]: job for job in jobs if isinstance(job, dict) and isinstance(job.get("name"), str)}
    claims = frozenset(_claims(spec))
    seen: list[str] = []
    for index, job in enumerate(jobs):
        if isinstance(job, dict):
            here: Path = (*_JOBS, index)
            yield from _job(job, here, seen)
            yield from _generated_names(document, job, here)
            template = get(job, "template", "spec", "template")
            yield from template_findings(template, (*here, "template", "spec", "template"), claims)
            seen.append(str(job.get("name")))
    yield from _network(spec)
    yield from _targets(get(spec, "successPolicy", "targetReplicatedJobs"), ("spec", "successPolicy"), by_name)
    yield from _failure_policy(get(spec, "failurePolicy", "rules"), by_name)
    yield from _coordinator(spec.get("coordinator"), by_name)
    manager = spec.get("managedBy")
    if isinstance(manager, str) and not (_MANAGER.match(manager) and len(manager) <= 63):
        message = f"{manager!r}: expected DOMAIN/PATH of 63 characters at most"
        yield Finding(path=("spec", "managedBy"), message=message)


def _claims(spec: Mapping[str, Any]) -> Iterator[str]:
    policies = spec.get("volumeClaimPolicies")
    for policy in policies if isinstance(policies, list) else []:
        templates = policy.get("templates") if isinstance(policy, dict) else None
        for template in templates if isinstance(templates, list) else []:
            name = get(template, "metadata", "name") if isinstance(template, dict) else None
            if isinstance(name, str):
                yield name


def _job(job: Mapping[str, Any], path: Path, before: list[str]) -> Iterator[Finding]:
    name, group, waits = job.get("name"), job.get("groupName"), job.get("dependsOn")
    if name in before:
        yield Finding(path=(*path, "name"), message=f"{name!r} appears twice")
    if isinstance(group, str) and (message := names.dns_label(group, letter_first=True)):
        yield Finding(path=(*path, "groupName"), message=message)
    if waits is not None and not before:
        yield Finding(path=(*path, "dependsOn"), message="does not go with the first job: nothing comes before it")
    for index, item in enumerate(waits if isinstance(waits, list) and before else []):
        other = item.get("name") if isinstance(item, dict) else None
        if isinstance(other, str) and other not in before:
            where = (*path, "dependsOn", index, "name")
            yield Finding(path=where, message=f"{other!r} is none of the jobs before: {', '.join(before)}")
    policy = get(job, "template", "spec", "template", "spec", "restartPolicy")
    if policy not in {None, "Never", "OnFailure"}:  # the webhook makes OnFailure of a missing one
        where = (*path, "template", "spec", "template", "spec", "restartPolicy")
        yield Finding(path=where, message=f"{policy!r}: a Job takes Never or OnFailure")


def _generated_names(document: Mapping[str, Any], job: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Names of the Jobs, and with `completions` of the Pods, whose random ending the webhook counts too."""
    metadata = document["metadata"] if isinstance(document.get("metadata"), dict) else {}
    generated = metadata.get("generateName")
    own = metadata.get("name") or (f"{generated}abcde" if generated else None)
    if not isinstance(own, str) or not isinstance(job.get("name"), str):
        return
    longest = f"{own}-{job['name']}-{_last(job.get('replicas', 1))}"
    what, completions = "Job", get(job, "template", "spec", "completions")
    if isinstance(completions, int) and get(job, "template", "spec", "completionMode") in {None, "Indexed"}:
        what, longest = "Pod", f"{longest}-{_last(completions)}-abcde"
    if len(longest) > names.LABEL_LENGTH:
        message = f"the {what} {longest!r} would have more than {names.LABEL_LENGTH} characters"
        yield Finding(path=(*path, "name"), message=message)
    elif names.dns_label(longest, letter_first=True):
        yield Finding(path=(*path, "name"), message=f"{longest!r}: expected a-z, 0-9 and -, a letter first")


def _network(spec: Mapping[str, Any]) -> Iterator[Finding]:
    subdomain = get(spec, "network", "subdomain")
    if isinstance(subdomain, str) and subdomain and (message := names.dns_label(subdomain, letter_first=True)):
        yield Finding(path=("spec", "network", "subdomain"), message=message)


def _targets(targets: Any, path: Path, by_name: Mapping[str, Any]) -> Iterator[Finding]:
    for index, target in enumerate(targets if isinstance(targets, list) else []):
        if target not in by_name:
            where = (*path, "targetReplicatedJobs", index)
            yield Finding(path=where, message=f"{target!r} is none of {', '.join(by_name)}")


def _failure_policy(rules: Any, by_name: Mapping[str, Any]) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, rule in enumerate(rules if isinstance(rules, list) else []):
        if not isinstance(rule, dict):
            continue
        path: Path = ("spec", "failurePolicy", "rules", index)
        name = rule.get("name") or f"failurePolicyRule{index}"  # the webhook names the others
        if not _RULE_NAME.match(str(name)):
            message = f"{name!r}: expected letters, digits, '_', ',' and ':', a letter first, 128 at most"
            yield Finding(path=(*path, "name"), message=message)
        if name in seen:
            yield Finding(path=(*path, "name"), message=f"{name!r} appears twice")
        seen.add(str(name))
        yield from _targets(rule.get("targetReplicatedJobs"), path, by_name)
        reasons = rule.get("onJobFailureReasons")
        for place, reason in enumerate(reasons if isinstance(reasons, list) else []):
            if reason not in _REASONS:
                message = f"{reason!r} is no reason of a Job's failure: expected {', '.join(_REASONS)}"
                yield Finding(path=(*path, "onJobFailureReasons", place), message=message)


def _coordinator(coordinator: Any, by_name: Mapping[str, Any]) -> Iterator[Finding]:
    if not isinstance(coordinator, dict) or not isinstance(coordinator.get("replicatedJob"), str):
        return
    path: Path = ("spec", "coordinator")
    job = by_name.get(coordinator["replicatedJob"])
    if job is None:
        message = f"{coordinator['replicatedJob']!r} is none of {', '.join(by_name)}"
        yield Finding(path=(*path, "replicatedJob"), message=message)
        return
    completions = get(job, "template", "spec", "completions")
    if not isinstance(completions, int) or get(job, "template", "spec", "completionMode") not in {None, "Indexed"}:
        message = f"the job {job['name']} of the coordinator must be Indexed and have completions"
        yield Finding(path=(*path, "replicatedJob"), message=message)
        return
    for key, count in (("jobIndex", job.get("replicas", 1)), ("podIndex", completions)):
        place = coordinator.get(key, 0)
        if isinstance(place, int) and isinstance(count, int) and not 0 <= place < count:
            yield Finding(path=(*path, key), message=f"{place}: expected 0 to {count - 1}")


def _last(count: Any) -> int:
    return count - 1 if isinstance(count, int) and count > 0 else 0
