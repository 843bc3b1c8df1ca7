"""Slurm with pyxis: a batch script with a step per role. Each task's launcher makes TF_CONFIG from the list of nodes.

pyxis ignores the image's entry point, so the script gives the command. Every role has its own nodes. All nodes have the
same resources, as in every Slurm allocation. Source: Slurm's pages on sbatch and srun; NVIDIA's pyxis and enroot.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs import launcher
from training_imgtool.jobs.frameworks import rules_of
from training_imgtool.jobs.model import (
    Document,
    Images,
    JobFile,
    JobOptions,
    args_with_job_dir,
    image_of,
    job_key,
    leader,
    passed_job_dir,
    ranks,
    replicas,
    reserved_errors,
    results_folder,
    size_errors,
    without_none,
)
from training_imgtool.jobs.service import JOB, Service, Standing, latest, result_of
from training_imgtool.jobs.targets.compose import cpus, is_folder
from training_imgtool.model.job import Slurm
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

_QUOTED, _BACKSLASH = re.compile(r"[\\\"$`}]"), r"\\\g<0>"  # in "${NAME:?TEXT}"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,-]*\Z")
_MEMORY = re.compile(r"(?P<number>[0-9]+)(?P<unit>[KMGT])i?\Z")
_CPUS = re.compile(r"[0-9]+(?:\.[0-9]+)?m?\Z")
_JOB_DIR = "/job"
_SHOWN = "--Format=JobID:|,State:|,Comment:|,exit_code:|"
_EVALUATION = 600
_FAILED = {"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED"}
_ENDING = """\
evaluated=
while read -r role code <&3; do  # the chief's end is the job's, and so is any failure
  if [ "$role" = evaluator ]; then evaluated=yes; fi
  if [ "$role" = {chief} ] || [ "$code" -ne 0 ]; then break; fi
done
"""
_LAST_EVALUATION = """\
if [ "$code" -eq 0 ]; then  # the evaluator may finish the last checkpoint
  until [ -n "$evaluated" ]; do
    read -r -t {seconds} role last <&3 || break
    if [ "$role" = evaluator ]; then evaluated=yes; fi
  done
fi
"""


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Finds every reason why the spec cannot be a Slurm job."""
    problems = list(_errors(spec))
    if rules_of(spec.framework).READS_SLURM and len(replicas(spec)) > 1:
        message = f"{spec.framework.title} finds only processes of the same Slurm step: expected one role"
        hint = "use only workers: worker 0 is process 0"
        problems.append(FieldError(message, field="roles.master", hint=hint))
    return problems


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the batch script of a spec in which `check` found no error; the document contains the script's parts."""
    options_of_job, steps = _options(spec, job_key(images, spec)), _steps(spec, images)
    return JobFile(
        target=Target.SLURM,
        documents=({"options": options_of_job, "env": _environment(spec), "steps": steps},),
        notes=tuple(_notes(spec)),
        command=("sbatch", options.file),
        header=("Needs pyxis, and an enroot that reads digests (docker://REGISTRY#IMAGE@DIGEST).",),
        script=_script(spec, options_of_job, steps),
        service=_service(str(options_of_job["job-name"]), job_key(images, spec)),
    )


def _service(name: str, key: str) -> Service:
    return Service(
        name=name,
        key=key,
        find=("squeue", "--me", "--all", "--states=all", "--noheader", f"--name={name}", _SHOWN),
        past=(
            "sacct", "--allocations", "--noheader", "--parsable2", f"--name={name}", "--starttime=now-365days",
            "--format=JobIDRaw,State,Comment,ExitCode",
        ),
        read=lambda text: _standing(text, name, key),
        watch=("squeue", f"--job={JOB}", "--iterate=10"),
        logs=("tail", "--follow=name", "--retry", f"slurm-{JOB}.out"),
        stop=("scancel", JOB),
    )  # fmt: skip


def _standing(text: str, name: str, key: str) -> Standing | None:
    """Reads `NUMBER|STATE|COMMENT|EXIT` lines; the comment, or else the end of the job's name, is the key.

    EXIT is a wait status in the output of squeue, and `CODE:SIGNAL` in that of sacct.
    """
    found = []
    for number, state, comment, *rest in (line.split("|") for line in text.splitlines() if line.count("|") >= 2):
        word = state.partition(" ")[0]  # CANCELLED by 1000
        known = comment.strip() if comment.strip() not in {"", "(null)"} else key if name.endswith(f"-{key}") else None
        status, colon, _ = "".join(rest[:1]).strip().partition(":")
        code = (int(status) if colon else int(status) >> 8) if status.isdecimal() else 0
        ended = result_of(word, {"COMPLETED"}, _FAILED)
        found.append(Standing(name=number, state=word, key=known, succeeded=ended, code=code or None))
    return latest(reversed(found), key)


def _options(spec: ImageSpec, key: str) -> Document:
    slurm, times = spec.job.slurm or Slurm(), spec.job.scheduling
    of_roles = [spec.roles[role] for role in replicas(spec)]
    count = sum(replicas(spec).values())
    processors = [math.ceil(float(cpus(of_role.cpus))) for of_role in of_roles if of_role.cpus]
    sizes = [size for of_role in of_roles if (size := _megabytes(of_role.memory))]
    gpus = max(of_role.gpus.count if of_role.gpus else 0 for of_role in of_roles)
    return without_none(
        {
            "job-name": spec.job.id or f"{spec.name}-{key}",
            "comment": key,
            "nodes": count,
            "ntasks": count,
            "ntasks-per-node": 1,
            "cpus-per-task": max(processors, default=None),
            "mem": f"{max(sizes)}M" if sizes else None,
            "gpus-per-node": gpus or None,
            "time": _clock(times.max_running) if times and times.max_running else None,
            "signal": f"TERM@{spec.job.grace_period}"
            if spec.job.grace_period
            else None,  # to the programs of the steps
            "partition": slurm.partition,
            "account": slurm.account,
            "qos": slurm.qos,
        }
    )


def _steps(spec: ImageSpec, images: Images) -> list[Document]:
    steps, first = [], 0
    job_dir = spec.job.job_dir
    mounted = passed_job_dir(spec, _JOB_DIR if is_folder(job_dir) else job_dir or results_folder(spec))
    mounts = [f"{job_dir}:{_JOB_DIR}"] if is_folder(job_dir) else []
    mounts += [f"{volume.host_path}:{volume.mount}" for volume in spec.job.volumes]
    for role, count in ranks(spec).items():
        registry, _, path = image_of(images, role).partition("/")
        program = (*launcher.trainer_command(spec, role), *args_with_job_dir(spec, role, mounted))
        words = [shlex.quote(word) for word in program]
        alone = sum(replicas(spec).values()) == 1 or rules_of(spec.framework).READS_SLURM
        command = " ".join(words) if alone else launcher.format_launch(words, "CLUSTER_NODES", "SLURM_PROCID", first)
        options: Document = {"nodes": count, "ntasks": count, "relative": first or None, "job-name": role.value}
        options |= {"kill-on-bad-exit": 1, "label": ""}
        options |= {"container-image": f"docker://{registry}#{path}", "container-mounts": ",".join(mounts) or None}
        options["container-env"] = (
            ",".join((*spec.job.env, *spec.job.secrets)) or None
        )  # otherwise the image's own variables take precedence in pyxis
        steps.append({"role": role.value, "options": without_none(options), "command": command})
        first += count
    return steps


def _environment(spec: ImageSpec) -> Document:
    rules = rules_of(spec.framework)
    cluster = {} if rules.READS_SLURM or sum(replicas(spec).values()) == 1 else launcher.variables(spec)
    return {**spec.job.env, **rules.slurm_variables(spec), **cluster}


def _script(spec: ImageSpec, options: Document, steps: list[Document]) -> str:
    lines = ["#!/bin/bash", *(f"#SBATCH --{key}={value}" for key, value in options.items()), ""]
    lines.append("export SLURM_EXPORT_ENV=ALL  # the steps get all of this, whatever sbatch --export said")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in _environment(spec).items()]
    for name in spec.job.secrets:
        file = str(spec.job.secrets_file)
        lines.append(f'export {name}="$(sed -n {shlex.quote(f"s/^{name}=//p")} {shlex.quote(file)})"')
        lines.append(f': "${{{name}:?is not in {_QUOTED.sub(_BACKSLASH, file)}}}"')
    if len(steps) > 1 or options["nodes"] > 1:
        lines.append('export CLUSTER_NODES="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"')
        lines.append("export CLUSTER_PORT=$((12000 + SLURM_JOB_ID % 20000))  # nodes may run other jobs too")
    starts = {}
    for step in steps:
        flags = " ".join(
            shlex.quote(f"--{key}={value}" if value != "" else f"--{key}") for key, value in step["options"].items()
        )
        starts[step["role"]] = f"srun {flags} {step['command']}"
    if len(steps) == 1:
        return "\n".join([*lines, *(f"exec {start}" for start in starts.values()), ""])
    lines.append("exec 3<> <(:)  # a pipe in which each step writes how it ended")
    lines += [f'({start}; echo "{role} $?" >&3) &' for role, start in starts.items()]
    ending = _ENDING.format(chief=leader(spec) or Role.MASTER)
    ending += _LAST_EVALUATION.format(seconds=_EVALUATION) if Role.EVALUATOR in replicas(spec) else ""
    return "\n".join([*lines, ending + 'exit "$code"  # Slurm ends the other steps', ""])


def _notes(spec: ImageSpec) -> Iterator[str]:
    times = spec.job.scheduling
    if not (times and times.max_running):
        yield "note: without job.scheduling.max_running only the partition's limit ends a job that hangs"


def _clock(duration: str) -> str:
    seconds = math.ceil(float(duration.removesuffix("s")))
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"


def _megabytes(text: str | None) -> int | None:
    match = _MEMORY.match(text or "")
    if match is None:
        return None
    factor: int = 1024 ** "KMGT".index(match["unit"])
    return max(1, int(match["number"]) * factor // 1024)


def _errors(spec: ImageSpec) -> Iterator[FieldError]:
    name, slurm = spec.job.id or spec.name, spec.job.slurm or Slurm()
    given = {"job.id": name, "job.slurm.partition": slurm.partition, "job.slurm.account": slurm.account}
    for field, text in {**given, "job.slurm.qos": slurm.qos}.items():
        if text is not None and not _WORD.match(text):
            yield FieldError(f"{text!r}: expected letters, digits, '_', '.', ',' and '-'", field=field)
    yield from size_errors(spec, _CPUS, _MEMORY)
    job_dir = spec.job.job_dir
    if job_dir and is_folder(job_dir) and (not job_dir.startswith("/") or ":" in job_dir or "," in job_dir):
        yield FieldError(f"{job_dir!r}: expected an absolute folder without ':' and ','", field="job.job_dir")
    yield from reserved_errors(spec, launcher.VARIABLE, "CLUSTER_NODES")
