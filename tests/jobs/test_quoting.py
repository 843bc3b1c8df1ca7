"""No value of a spec runs in a shell: each is refused, or quoted in the scripts and command lines of every target.

`make long` tries every key with every value, the normal suite a sample.
"""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml

from tests.jobs.specs import images
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.jobs import Format, JobFile, JobOptions, job_data
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.jobs.text import dump, submit_lines
from training_imgtool.model.decode import list_field_kinds, strip_none
from training_imgtool.model.job import JobSpec
from training_imgtool.model.load import load
from training_imgtool.model.spec import RoleSpec
from training_imgtool.model.targets import Target

VALUES = (
    "$(touch${IFS}$RAN)", "`touch $RAN`", ";touch $RAN;", "x;touch $RAN", "'; touch $RAN; '", '"; touch $RAN; "',
    "|touch $RAN", "&touch $RAN", "/x$(touch${IFS}$RAN)", "/x;touch${IFS}$RAN", "/x`touch${IFS}$RAN`", "}$(touch $RAN)",
    '"}$(touch $RAN)', "\\$(touch $RAN)", "a\ntouch $RAN", "gs://b/$(touch${IFS}$RAN)", "x\n#SBATCH --wrap=x", "!x",
    "/x'$(touch${IFS}$RAN)'", '/x}"$(touch${IFS}$RAN)"', "/x\\", "x,target=/app", "-x;id", "--wrap=touch $RAN",
)  # fmt: skip
SECRETS = {Target.SLURM, Target.TF_CONFIG}
SHELLS = ("bash", "dash")


def _list_keys(kind: type, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each text below a dataclass; a number is an index of a list."""
    for name, annotation in list_field_kinds(kind).items():
        inner, place = strip_none(annotation)[0], (*path, name)
        if get_origin(inner) is Mapping:
            inner, place = get_args(inner)[1], (*place, "X")
        elif get_origin(inner) is tuple:
            inner, place = get_args(inner)[0], (*place, 0)
        if dataclasses.is_dataclass(inner) and isinstance(inner, type):
            yield from _list_keys(inner, place)
        elif inner is str:
            yield place


_TOP = (("name",), ("env", "X"), ("args", 0), ("user",))
KEYS = (*_TOP, *_list_keys(JobSpec, ("job",)), *_list_keys(RoleSpec, ("roles", "worker")))


def _with(document: Any, path: tuple[Any, ...], value: str) -> Any:
    """The document with a value at a path."""
    if not path:
        return value
    first, *rest = path
    if isinstance(first, int):
        below = document[0] if isinstance(document, list) and document else None
        return [_with(below, tuple(rest), value)]
    document = dict(document or {})
    if first in {"nfs_server", "nfs_path", "host_path", "claim", "bucket"}:
        document = (
            {"mount": "/data", "nfs_server": "nas", "nfs_path": "/x"} if first.startswith("nfs") else {"mount": "/d"}
        )
    return {**document, first: _with(document.get(first), tuple(rest), value)}


def _spec(target: Target) -> dict[str, Any]:
    own = {Target.SLURM, Target.COMPOSE, Target.TF_CONFIG}
    worker = {"machine": "ecs.c6.large" if target is Target.ECI else None if target in own else "n1-standard-4"}
    job: dict[str, Any] = {"region": "us-central1"}
    if target in SECRETS:
        job |= {"secrets": {"TOK": {}}, "secrets_file": "/run/secrets.txt"}
    return {"name": "demo", "tensorflow": "2.15.1", "roles": {"worker": worker}, "job": job}


def _texts(job: JobFile) -> Iterator[str]:
    """What a person or a service gives to a shell: scripts, commands, and a task's own lines. `--env-file` is none."""
    yield submit_lines(job)
    text = dump(job)
    if job.script is not None:
        yield text
    for document in job.documents:
        if isinstance(document, dict) and isinstance(document.get("run"), str):
            yield document["run"]
    yield "\n".join(line.lstrip("# ") if line.startswith("#   ") else "" for line in text.splitlines())
    for form in (Format.GCLOUD, Format.DOCKER_RUN):
        try:
            yield dump(job, form)
        except ImgtoolError:
            continue


def _job(folder: Path, target: Target, key: tuple[Any, ...], value: str) -> JobFile | None:
    """The job file of a spec with the value at the key; None if imgtool refuses it."""
    (folder / "image.yaml").write_text(json.dumps(_with(_spec(target), key, value)))
    try:
        spec = load(folder / "image.yaml").spec
        options = JobOptions(version="0.1.0", hosts=parse_hosts("worker=vm-1"))
        return job_data(spec, images(spec), target, options)
    except ImgtoolError:
        return None


def _run(folder: Path, shell: str, text: str) -> bool:
    """Whether a command of the value ran. No program that a script starts is there."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/touch").unlink(missing_ok=True)
    (folder / "bin/touch").write_text(f"#!/bin/sh\n: > {folder}/ran\n")
    (folder / "bin/touch").chmod(0o755)
    env = {"PATH": f"{folder}/bin", "RAN": f"{folder}/ran", "SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "7"}
    (folder / "script").write_text(text)
    subprocess.run(
        [f"/bin/{shell}", str(folder / "script")], env=env, cwd=folder, capture_output=True, check=False, timeout=20,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return (folder / "ran").exists()


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("target", list(Target))
def test_no_value_runs(target: Target, every: int, tmp_path: Path, record_property: Any) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("")
    pairs = [(key, value) for key in KEYS for value in VALUES]
    random.Random(target).shuffle(pairs)
    seen: set[str] = set()
    taken = 0
    for key, value in pairs[::every]:
        job = _job(tmp_path, target, key, value)
        if job is None:
            continue
        taken += 1
        words = [word for index, word in enumerate(job.command) if word == value and index]
        assert not (value.startswith("-") and words and key[-1] not in {0, "X"}), (key, value, job.command)
        for text in _texts(job):
            for shell in SHELLS if text not in seen and "RAN" in text else ():
                assert not _run(tmp_path, shell, text), (key, value, shell, text)
            seen.add(text)
    record_property("tried", f"{target}: {len(pairs[::every])} values, {taken} taken, {len(seen)} texts")


def test_a_value_that_is_not_quoted_would_run(tmp_path: Path) -> None:
    assert [_run(tmp_path, shell, "x $(touch${IFS}$RAN)") for shell in SHELLS] == [True, True]
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("")
    job = _job(tmp_path, Target.SLURM, ("job", "secrets_file"), "/x'$(touch${IFS}$RAN)'")
    assert job is not None
    assert yaml.safe_dump(job.script)
