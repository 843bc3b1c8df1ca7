"""The image's identity and run settings: key, platform, base, entry point, user, environment.

What is expected of the settings is what the rendered Dockerfile makes of the base's, worked out by the same rules
that the direct builder follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.image.image_config import apply, with_path
from training_imgtool.dockerfile.evaluate import Scope, ambiguous_args, walk
from training_imgtool.dockerfile.parse import Dockerfile
from training_imgtool.plan import KEY_LABEL
from training_imgtool.registry.manifests import Platform
from training_imgtool.verify.case import Case, shorten
from training_imgtool.verify.facts import Finding, read_env, read_platform
from training_imgtool.verify.inspect_registry import find_shared_layers

_FILES_ONLY = frozenset({"ADD", "COPY", "RUN"})
_PLATFORM = ("variant", "os.version", "os.features")
_OTHERS = ("ExposedPorts", "Healthcheck", "OnBuild", "Shell", "StopSignal", "Volumes")


def make_findings(case: Case) -> Iterator[Finding]:
    """Yields the checks of an image's config."""
    yield _check_key(case)
    yield _check_platform(case)
    yield _check_base(case)
    yield _check_layers(case)
    expected = plan_settings(case.image.dockerfile, (case.facts.base_config or {}).get("config"))
    if expected is None:
        expected = {"Entrypoint": list(case.image.plan.entrypoint), "User": case.image.plan.user or ""}
    yield _check_entrypoint(case, expected)
    yield _check_user(case, expected)
    yield _check_environment(case, expected)


def plan_settings(dockerfile: Dockerfile, base: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Plans the `config` object of the last stage's image; None when the base is unknown or an engine must decide."""
    if base is None or base.get("OnBuild"):
        return None
    stage, stages = dockerfile.stages[-1], [dockerfile.stages[-1]]
    while (below := dockerfile.earlier(stage.base, stage)) is not None:
        stages.insert(0, below)
        stage = below
    settings: dict[str, Any] = dict(with_path(base))
    for stage in stages:
        if ambiguous_args(dockerfile, stage, read_env(settings)):
            return None
        steps, _ = walk(dockerfile, stage, Scope(env=read_env(settings), args={}))
        cmd_set = False
        for step in steps:
            if step.name in _FILES_ONLY:
                continue
            try:
                settings = apply(settings, step, cmd_set=cmd_set)
            except NeedsEngineError:
                return None
            cmd_set = cmd_set or step.name == "CMD"
    return settings


def _check_key(case: Case) -> Finding:
    labels = case.facts.settings.get("Labels") or {}
    key = str(labels.get(KEY_LABEL) or "no key")
    if key != case.image.key:
        return case.wrong("image", f"{case.facts.image}, made from {key[:12]}", f"made from {case.image.key[:12]}")
    return case.ok("image", case.facts.image, f"key {key[:12]}")


def _check_platform(case: Case) -> Finding:
    platform, planned = read_platform(case.facts.config), case.image.plan.platform
    if platform != planned:
        return case.wrong("platform", platform, planned)
    base = dict(case.facts.base_config or {})
    given = {name: value for name in _PLATFORM if (value := case.facts.config.get(name))}
    plain = Platform(*platform.split("/", 1))
    if replace(plain, variant=str(given.get("variant"))).normal == plain:
        base["variant"] = given["variant"]  # what the processor's name implies, as arm64/v8
    if differ := [f"{name} {value}" for name, value in given.items() if value != base.get(name)]:
        return case.wrong("platform", f"{platform}, {', '.join(differ)}", "that of the base")
    return case.ok("platform", platform)


def _check_layers(case: Case) -> Finding:
    """Returns whether an engine takes the layers as they are, by what Docker refuses when it unpacks them."""
    facts, faults = case.facts, []
    diff_ids = (facts.config.get("rootfs") or {}).get("diff_ids") or []
    for number, listing in sorted({**facts.listings, **facts.damaged}.items()):
        name = f"layer {number + 1} ({facts.layers[number].digest[:19]})"
        faults += [f"{name}: {fault}" for fault in listing.faults]
        planned = str(diff_ids[number]) if number < len(diff_ids) else "none"
        if listing.diff_id and listing.diff_id != planned:
            faults.append(f"{name}: its content is {listing.diff_id[:19]}, and the config says {planned[:19]}")
    if len(diff_ids) != len(facts.layers) and any(layer.digest for layer in facts.layers):
        faults.append(f"the manifest has {len(facts.layers)} layers and the config {len(diff_ids)}")
    if faults:
        return case.differs("layers", faults, "layers that engines unpack")
    return case.ok("layers", f"{len(facts.listings)} of {len(facts.layers)} read")


def _check_base(case: Case) -> Finding:
    plan, base = case.image.plan, case.facts.base_config
    name = f"{plan.base_name}@{plan.base.digest[:19]}"
    if base is None:
        return case.unseen("base", f"{plan.base} is in no registry any more")
    count = len((base.get("rootfs") or {}).get("diff_ids") or [])
    shared = len(find_shared_layers(case.facts.config, base))
    if shared < count:
        return case.wrong("base", f"{shared} of the base's {count} layers", name)
    if case.own_seen and (complaints := case.compared.complaints["base"]):
        return case.differs("base", complaints, f"{name}, and on it what the Dockerfile puts there")
    made, count = case.facts.expected, case.compared.unpredicted
    beside = (
        f"; {count} files of RUN, which only an engine can make: {made.why}"
        if made and not made.whole and count
        else ""
    )
    return case.ok("base", name + beside)


def _check_entrypoint(case: Case, expected: Mapping[str, Any]) -> Finding:
    actual, planned = _command(case.facts.settings), _command(expected)
    is_same = actual == planned if "Env" in expected else [*itertools.chain(*actual)] == [*itertools.chain(*planned)]
    if not is_same:
        return case.wrong("entry point", _format_commands(actual), _format_commands(planned))
    return case.ok("entry point", " ".join(itertools.chain(*actual)))


def _command(settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns ENTRYPOINT, and CMD, in whose place a job's arguments come."""
    return settings.get("Entrypoint") or [], settings.get("Cmd") or []


def _format_commands(command: tuple[list[str], list[str]]) -> str:
    entry, arguments = (" ".join(words) for words in command)
    return f"{entry or 'none'}, with CMD {arguments}" if arguments else entry or "none"


def _check_user(case: Case, expected: Mapping[str, Any]) -> Finding:
    user, planned = (str(settings.get("User") or "root") for settings in (case.facts.settings, expected))
    return case.ok("user", user) if user == planned else case.wrong("user", user, planned)


def _check_environment(case: Case, expected: Mapping[str, Any]) -> Finding:
    """Values are not shown: what somebody put in their place may be a secret."""
    env, lines = case.facts.env, case.facts.settings.get("Env") or []
    planned = read_env(expected) if "Env" in expected else dict(case.image.plan.env)
    differ = [f"{name} is missing" for name in planned if name not in env]
    differ += [f"{name} has another value" for name in planned if name in env and env[name] != planned[name]]
    if "Env" in expected:
        differ += [f"{name} was not planned" for name in env if name not in planned]
        if len(lines) > len(env):
            differ.append(f"{len(lines) - len(env)} names are there twice")
        labels = case.facts.settings.get("Labels") or {}
        planned_labels = (expected.get("Labels") or {}).items()
        differ += [f"label {name} has another value" for name, value in planned_labels if labels.get(name) != value]
    folder, wanted = (settings.get("WorkingDir") for settings in (case.facts.settings, expected))
    if "WorkingDir" in expected and folder != wanted:
        differ.append(f"the working folder is {folder}, not {wanted}")
    if "Env" in expected:  # Podman leaves out what only Docker's format has
        given = {key: value for key in _OTHERS if (value := case.facts.settings.get(key))}
        differ += [f"{key} is not as planned" for key, value in given.items() if value != expected.get(key)]
    if differ:
        return case.wrong("environment", shorten(differ), f"{len(planned)} variables as planned")
    return case.ok("environment", f"{len(env)} variables")
