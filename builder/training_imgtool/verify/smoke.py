"""The smoke test, which starts an image in a short-lived container. The test does not prove what the image contains."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from training_imgtool.base.progress import Step
from training_imgtool.base.reference import Digest
from training_imgtool.jobs.cluster import Flavour, to_texts
from training_imgtool.jobs.frameworks import rules_of
from training_imgtool.make.engines.docker.containers import Containers
from training_imgtool.make.engines.docker.probe import Answer, Probe, run_probe
from training_imgtool.make.engines.pull import pull_image
from training_imgtool.model.entry_point import EntryPoint
from training_imgtool.model.frameworks import FRAMEWORKS, Framework
from training_imgtool.model.spec import Accelerator
from training_imgtool.plan.inputs import RoleImage
from training_imgtool.verify.findings import Finding, mismatch, ok, unproven

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.engine import DockerEngine
    from training_imgtool.oci.machine import Machine

PYTHON = "/opt/venv/bin/python"
_MOST_MODULES = 5
RUN_SECONDS = 300.0
Parts = Mapping[str, Mapping[str, Any]]


def check_start(
    image: RoleImage, entry: EntryPoint, digest: Digest, engine: DockerEngine, machine: Machine
) -> Iterator[Finding]:
    """Runs a container that opens libraries, imports the framework, multiplies matrices, and imports the trainer.

    Raises what the engine raises, including its errors from pulling the image.
    """
    name = pull_image(digest, image.key, platform=image.recipe.platform, engine=engine, machine=machine)
    is_gpu = image.locked.variant.accelerator is Accelerator.GPU
    gpus = is_gpu and bool(Containers(engine.api).machine().nvidia)
    variant = image.locked.variant
    machine.progress(Step(str(image.role), f"importing {variant.framework.key} and {entry.name}"))
    module = entry.module or entry.arguments[-1]
    alone = {image.role: ["localhost"]}  # so that the trainer waits for no other replica
    env = to_texts(rules_of(variant.framework).describe(None, Flavour.LOCAL, alone, image.role, 0))
    request = {"module": module, "libraries": sorted(variant.libraries), "env": env, "framework": variant.framework.key}
    text = f"{program_of(variant.framework)}\nrun(json.loads({json.dumps(request)!r}))\n"
    probe = Probe(image=name, command=(PYTHON, "-c", text), seconds=RUN_SECONDS, gpus=gpus)
    answer = run_probe(engine.api, probe)
    if answer.fault is not None and "exec format error" in answer.fault:
        yield unproven("smoke test", f"the engine's machine does not run {image.recipe.platform}")
        return
    yield from judge(answer, variant.release, variant.framework, needs_gpu=gpus)


def program_of(framework: Framework) -> str:
    """Returns the text of the program that runs inside an image with `framework`, without the call of `run`."""
    folder = files("training_imgtool.verify")
    own = folder.joinpath("frameworks", f"{framework.key}.py").read_text()
    return folder.joinpath("smoke_program.py").read_text() + own.replace("from __future__ import annotations\n", "")


def judge(answer: Answer, release: str, framework: Framework, *, needs_gpu: bool) -> Iterator[Finding]:
    """Yields a finding for each part of the program's output, which is foreign text."""
    parts = _read_parts(answer)
    if problem := _find_problem(answer, parts):
        yield mismatch("smoke test", problem, "a program that starts and ends")
    closed = [library for library in parts.get("libraries", {}).get("libraries", ()) if library.get("error")]
    if closed:
        yield mismatch("libraries", f"{closed[0]['name']}: {closed[0]['error']}", "libraries that open")
    found = parts.get(framework.key, {}).get("version")
    yield _judge_part(parts, framework.key, f"{framework.title} {release}", found=found)
    used = parts.get("compute", {}).get("used") or ()
    if needs_gpu and not parts.get("compute", {}).get("gpus") and used:
        yield mismatch("compute", f"{framework.title} sees no GPU", "a product on each GPU")
    else:
        yield _judge_part(parts, "compute", "a product of two matrices", found=", ".join(used))
    yield from _judge_modules(parts)
    trainer = parts.get("trainer", {})
    if "left" in trainer:
        yield ok(
            "trainer", f"ends the program as it is imported ({trainer['left']}), as one that reads its arguments does"
        )
    else:
        yield _judge_part(parts, "trainer", "a trainer that imports", found=trainer.get("file"))


def _judge_modules(parts: Parts) -> Iterator[Finding]:
    """Yields a finding for each module of the wheels that does not import."""
    part = parts.get("modules")
    if part is None:
        yield unproven("modules", "the program did not import the modules of the wheels")
        return
    failed = [row for row in part.get("failed", ()) if isinstance(row, dict)]
    for row in failed[:_MOST_MODULES]:
        said = f"{row.get('name')}: {row.get('error')}: {row.get('message', '')}"
        yield mismatch("modules", f"{said} at {row['where']}" if row.get("where") else said, "a module that imports")
    if not failed:
        yield ok("modules", f"{part.get('count')} modules of the wheels import")


def _judge_part(parts: Parts, name: str, expected: str, *, found: object) -> Finding:
    part = parts.get(name)
    if part is None:
        return mismatch(name, "nothing: the program did not get that far", expected)
    if "error" in part:
        where = f" at {part['where']}" if part.get("where") else ""
        return mismatch(name, f"{part['error']}: {part.get('message', '')}{where}", expected)
    framework = FRAMEWORKS.get(name)
    if framework and expected not in _spellings(framework, str(found)):
        return mismatch(name, f"{framework.title} {found}", expected)
    return ok(name, f"{found}")


def _spellings(framework: Framework, version: str) -> set[str]:
    """Returns a version with and without its local part: `2.13.0+cpu` is a build of 2.13.0."""
    return {f"{framework.title} {version}", f"{framework.title} {version.partition('+')[0]}"}


def _read_parts(answer: Answer) -> dict[str, Mapping[str, Any]]:
    parts: dict[str, Mapping[str, Any]] = {}
    for line in answer.output.splitlines():
        try:
            part = json.loads(line)
        except ValueError:
            continue
        if isinstance(part, dict) and isinstance(part.get("part"), str):
            parts[part["part"]] = part
    return parts


def _find_problem(answer: Answer, parts: Parts) -> str | None:
    """Returns why the program did not start, or did not end by itself; None if it started and ended."""
    if answer.fault is not None:
        return answer.fault
    if not parts:
        return answer.errors.splitlines()[-1] if answer.errors else "it printed nothing"
    end = parts.get("end", {})
    if answer.late:
        return f"it did not end within {RUN_SECONDS:.0f} seconds"
    if end.get("signal"):
        return f"it was killed by signal {end['signal']}"
    return "it broke off" if not end else None
