"""The outcome of a run: as a value, as plain data for `--json`, and as a few lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.reference import Digest
from training_imgtool.jobs.model import names_bucket
from training_imgtool.local.checkpoints import Checkpoint
from training_imgtool.local.limits import Share
from training_imgtool.local.preemption import Preemption, describe, describe_loss
from training_imgtool.local.rehearsal import Action, Kill, Verdict
from training_imgtool.local.replicas import JOB_DIR, Replica, Service
from training_imgtool.local.results import Kind, WrittenFile, describe_names, kind_of
from training_imgtool.make.engines.docker.containers import Ended
from training_imgtool.model.spec import Role


class State(StrEnum):
    """The final state of a replica: it ended by itself, imgtool stopped it after the run, or it never started."""

    EXITED = "exited"
    STOPPED = "stopped"
    UNSTARTED = "not started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunImage:
    """One role's image in the engine.

    Attributes:
        reference: the image's name in the engine: the digest or the ID.
        digest: the image's name in the job file.
        source: `registry`, `engine` or `built`.
    """

    reference: str
    digest: Digest
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaResult:
    """What happened to one replica.

    Attributes:
        seconds: the time from the first start to the end.
        peak_memory: in bytes, as sampled every second.
        spans: start and end of each container of the replica, in seconds of the run.
        memory: samples, each with seconds of the run and bytes; a long run keeps only some.
    """

    replica: Replica
    image: RunImage
    share: Share
    state: State
    exit_code: int | None
    out_of_memory: bool
    seconds: float
    peak_memory: int | None
    restarts: int
    spans: tuple[tuple[float, float], ...] = ()
    memory: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathResult:
    """The death of a replica, `at` seconds after the run began, and the service's action.

    Attributes:
        rehearsed: whether an option asked for this death.
        back_after: seconds until the replica ran again; None if it never did.
        checkpoint: the newest checkpoint at that moment.
        preemption: the result of --preempt.
        began_again: whether the program printed its first steps or epochs again after it.
    """

    name: str
    at: float
    exit_code: int
    rehearsed: bool
    verdict: Verdict
    back_after: float | None
    checkpoint: Checkpoint | None
    preemption: Preemption | None = None
    began_again: bool = False

    @property
    def what(self) -> str:
        """How the replica died, in words that follow its name."""
        if self.rehearsed:
            return "was preempted" if self.preemption else "was killed"
        return f"exited {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the run failed: the replica at fault, the reason, and the last lines that the replica printed."""

    name: str
    message: str
    last_lines: tuple[str, ...]
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The outcome of a run that has ended."""

    run: str
    name: str
    service: Service
    seconds: float
    job_dir: Path
    replicas: tuple[ReplicaResult, ...]
    deaths: tuple[DeathResult, ...]
    missed: tuple[Kill, ...]  # kills after the end of the run, or of a replica that was not running
    failure: Failure | None
    checkpoint: Checkpoint | None  # the newest checkpoint at the end
    written: tuple[WrittenFile, ...]  # files in the job directory
    lost: Mapping[str, tuple[str, ...]]  # by replica, the paths that it wrote in its container and that are lost
    notes: tuple[str, ...]


class Kept(StrEnum):
    """Whether a run's result is in the job directory, according to the names of files."""

    RESULT = "result"
    LOGS = "logs"
    NOTHING = "nothing"
    LOST = "lost"  # a container took a model or checkpoint with it, and only lesser files stay


_KEPT = {
    Kept.RESULT: "",
    Kept.LOGS: ", without a model",
    Kept.NOTHING: ", without a result",
    Kept.LOST: ", its model lost",
}


def kept_of(summary: Summary) -> Kept:
    """Decides whether the result stays, from the files in the job directory and the files that are lost."""
    gone = max((kind_of(path) for paths in _gone(summary).values() for path in paths), default=Kind.LOG)
    if not summary.written:
        return Kept.LOST if gone >= Kind.CHECKPOINT else Kept.NOTHING
    stays = max(kind_of(file.path) for file in summary.written)
    if gone > stays and gone >= Kind.CHECKPOINT:
        return Kept.LOST
    return Kept.LOGS if stays is Kind.LOG or gone > stays else Kept.RESULT


def _gone(summary: Summary) -> Mapping[str, tuple[str, ...]]:
    """Maps each replica to the files that the service would lose, too; Vertex AI keeps files below /gcs."""
    if summary.service is not Service.VERTEX:
        return summary.lost
    return {name: tuple(path for path in paths if not path.startswith("/gcs/")) for name, paths in summary.lost.items()}


def describe_end(summary: Summary) -> str:
    """Describes how the run ended, in a few words."""
    if summary.failure:
        return f"failed: {summary.failure.message}"
    if again := _find_again(summary):
        return f"training began again from the start after {again.name} {again.what}"
    kept = kept_of(summary)
    here = " here" if kept is Kept.NOTHING and _list_urls(summary) else ""
    return f"succeeded{', without its rehearsal' if summary.missed else ''}{_KEPT[kept]}{here}"


def _find_again(summary: Summary) -> DeathResult | None:
    """Returns the first rehearsed death after which training began again from the start."""
    return next((death for death in summary.deaths if death.rehearsed and death.began_again), None)


def failure_of(death: DeathResult, ended: Ended | None, share: Share, last_lines: tuple[str, ...]) -> Failure:
    """Describes the run's failure, given a death after which the service would not restart the replica."""
    message, hint = f"{death.name} exited {death.exit_code}", death.verdict.hint
    if ended and ended.out_of_memory and not death.rehearsed:
        limit = f" of {share.memory / (1 << 30):.1f} GiB" if share.memory else ""
        message, hint = (
            f"{death.name} ran out of its memory{limit}",
            "fewer --workers or --ps leave more memory for each",
        )
    elif death.rehearsed:
        message = f"{death.name} {death.what}, as {'--preempt' if death.preemption else '--kill'} asked"
    if ended and ended.fault:
        message += f" ({ended.fault})"
    return Failure(name=death.name, message=message, last_lines=last_lines, hint=hint)


def error_of(summary: Summary) -> VerificationError | None:
    """Returns an error if the run failed or a requested death did not happen; otherwise None."""
    failure = summary.failure
    if failure is None and (again := _find_again(summary)):
        hint = "let the program read its newest checkpoint when it starts"
        if again.checkpoint is None:
            hint = "it had no checkpoint then: set a later time in the option, or let the program save more often"
        return VerificationError(describe_end(summary), hint=hint)
    if failure is None:
        if not summary.missed:
            return None
        missed = "; ".join(_missed_line(kill, summary) for kill in summary.missed)
        hint = f"set an earlier time in {summary.missed[0].option}, or let the program run longer"
        return VerificationError(f"the run succeeded, but a rehearsal did not happen: {missed}", hint=hint)
    return VerificationError(f"the run failed: {failure.message}", hint=failure.hint, details=failure.last_lines)


def as_data(summary: Summary) -> dict[str, Any]:
    """Returns what `--json` prints."""
    return {
        "ok": error_of(summary) is None,
        "run": summary.run,
        "name": summary.name,
        "as": str(summary.service),
        "seconds": round(summary.seconds, 1),
        "job_dir": str(summary.job_dir),
        "checkpoint": summary.checkpoint.path if summary.checkpoint else None,
        "written": [{"path": file.path, "bytes": file.size} for file in summary.written],
        "kept": str(kept_of(summary)),
        "lost": {name: list(paths) for name, paths in summary.lost.items()},
        "failed": summary.failure.name if summary.failure else None,
        "replicas": [_replica_data(result) for result in summary.replicas],
        "deaths": [_death_data(death, summary) for death in summary.deaths],
        "missed": [
            {"replica": _name_of(kill), "option": kill.option, "asked_seconds": kill.seconds} for kill in summary.missed
        ],
        "notes": list(summary.notes),
    }


def _replica_data(result: ReplicaResult) -> dict[str, Any]:
    replica, share = result.replica, result.share
    return {
        "name": replica.name,
        "role": str(replica.role),
        "index": replica.index,
        "task": replica.task,
        "host": replica.host,
        "image": str(result.image.digest) if result.image.source == "registry" else result.image.reference,
        "image_from": result.image.source,
        "state": str(result.state),
        "exit_code": result.exit_code,
        "out_of_memory": result.out_of_memory,
        "seconds": round(result.seconds, 1),
        "peak_memory_bytes": result.peak_memory,
        "memory_limit_bytes": share.memory,
        "cpus": share.cpus,
        "gpus": share.gpus if isinstance(share.gpus, int) else list(share.gpus),
        "restarts": result.restarts,
    }


def _death_data(death: DeathResult, summary: Summary) -> dict[str, Any]:
    return {
        "replica": death.name,
        "at_seconds": round(death.at, 1),
        "exit_code": death.exit_code,
        "rehearsed": death.rehearsed,
        "action": str(death.verdict.action),
        "because": death.verdict.because,
        "documented": death.verdict.documented,
        "back_after_seconds": None if death.back_after is None else round(death.back_after, 1),
        "checkpoint_then": death.checkpoint.path if death.checkpoint else None,
        "went_on": _went_on(death, summary),
        "preemption": _preemption_data(death.preemption) if death.preemption else None,
    }


def _preemption_data(preemption: Preemption) -> dict[str, Any]:
    return {
        "handling": str(preemption.handling),
        "sigterm": str(preemption.disposition) if preemption.disposition else None,
        "grace_seconds": preemption.grace,
        "ended_after_seconds": round(preemption.ended_after, 1),
        "killed": preemption.killed,
        "saved": preemption.saved.path if preemption.saved else None,
        "checkpoint_step": preemption.checkpoint_step,
        "unit": preemption.unit or None,
        "last": preemption.last,
        "next": preemption.next,
        "lost": preemption.lost,
        "next_after_seconds": None if preemption.next_after is None else round(preemption.next_after, 1),
    }


def as_lines(summary: Summary) -> str:
    """Formats the lines about the run, each replica, each death, and the results."""
    return "".join(f"{line}\n" for line in _lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    yield f"{summary.name} as {summary.service}: {describe_end(summary)}, {summary.seconds:.0f} s"
    width = max(len(result.replica.name) for result in summary.replicas)
    yield from (_replica_line(result, width) for result in summary.replicas)
    for death in summary.deaths:
        yield from _death_lines(death, summary)
    for kill in summary.missed:
        yield _missed_line(kill, summary)
    newest = f", newest checkpoint {summary.checkpoint.path}" if summary.checkpoint else ", no checkpoint"
    yield f"job directory: {summary.job_dir}{newest}"
    yield from _result_lines(summary)


def _result_lines(summary: Summary) -> Iterator[str]:
    """Yields lines about the files that the run wrote, and about the files that are lost."""
    if summary.written:
        size = sum(file.size for file in summary.written)
        count = f"{len(summary.written)} file{'s' if len(summary.written) > 1 else ''}"
        yield f"  written: {count}, {size / 1e6:.1f} MB: {describe_names(file.path for file in summary.written)}"
    else:
        yield "  written: nothing: this run has no result in its job directory"
    if kept_of(summary) is Kept.LOGS:
        yield "  no model or checkpoint is among these files"
    for name, paths in summary.lost.items():
        yield f"  gone with {name}'s container: {describe_names(paths)}"
    if summary.lost or not summary.written:
        yield f"  what a program writes to {JOB_DIR} stays; {_describe_cure(summary)}"
    yield from (f"  imgtool has not checked what the run wrote to {url}" for url in _list_urls(summary))


def _describe_cure(summary: Summary) -> str:
    """Explains how to pass the job directory to the program."""
    args = {arg: None for result in summary.replicas for arg in result.replica.args}
    gone = [path for paths in summary.lost.values() for path in paths]
    for arg in args:
        place = arg.rpartition("=")[2].rstrip("/").removeprefix("./")
        folder = place if place.startswith("/") else f"/{place}"
        if len(folder) > 1 and any(f"{folder}/" in f"{path}/" for path in gone):
            return f"{arg} is in its container"
    if any(arg.startswith(f"--job-dir={JOB_DIR}") for arg in args):
        return f"it gets --job-dir={JOB_DIR}"
    return f"job.pass_job_dir: true passes it --job-dir={JOB_DIR}"


def _list_urls(summary: Summary) -> list[str]:
    """Lists the URLs of buckets in the arguments, because the run may have written to these buckets, too."""
    args = (arg.rpartition("=")[2] for result in summary.replicas for arg in result.replica.args)
    return sorted({arg for arg in args if names_bucket(arg)})


def _missed_line(kill: Kill, summary: Summary) -> str:
    why = "it was not running then" if kill.seconds < summary.seconds else f"the run ended at {summary.seconds:.1f} s"
    return f"{_name_of(kill)} was not {'preempted' if kill.preempted else 'killed'} at {kill.seconds:g} s: {why}"


def _replica_line(result: ReplicaResult, width: int) -> str:
    code = "-" if result.exit_code is None else str(result.exit_code)
    ended = "stopped" if result.state is State.STOPPED else f"exit {code}"
    memory = "-" if result.peak_memory is None else f"{result.peak_memory / 1e6:.0f} MB"
    restarts = f"  restarted {_times(result.restarts)}" if result.restarts else ""
    starved = "  out of memory" if result.out_of_memory else ""
    return f"  {result.replica.name:<{width}}  {ended:<8}  {result.seconds:6.1f} s  {memory:>8}{restarts}{starved}"


def _death_lines(death: DeathResult, summary: Summary) -> Iterator[str]:
    basis = "" if death.verdict.documented else " (assumed)"
    reason = f"{summary.service}: {death.verdict.because}{basis}"
    began = death.at - (death.preemption.ended_after if death.preemption else 0.0)
    yield f"{death.name} {death.what} at {began:.1f} s: {_describe_effect(death)}. {reason}"
    if death.preemption:
        yield f"  {describe(death.preemption, death.exit_code)}"
        if death.exit_code == 0:
            yield "  some services treat exit code 0 as the replica's success: exit with 143 after the checkpoint"
        yield f"  {describe_loss(death.preemption)}"
    if death.back_after is not None:
        went_on = "training went on" if _went_on(death, summary) else "training did not end well"
        if death.began_again:
            went_on = "training began again from the start"
        elif death.checkpoint is None and summary.checkpoint is None:
            yield "  without a checkpoint, imgtool cannot tell whether training resumed"
            return
        then = f"newest checkpoint {death.checkpoint.path}" if death.checkpoint else "no checkpoint yet"
        now = f", {summary.checkpoint.path} at the end" if summary.checkpoint else ""
        yield f"  {went_on}: {then} when it died{now}"


def _describe_effect(death: DeathResult) -> str:
    if death.back_after is None:
        return "the run failed" if death.verdict.action is Action.FAIL else "the run ended before it was back"
    whole = " with all others" if death.verdict.action is Action.RESTART_JOB else ""
    return f"restarted{whole} after {death.back_after:.1f} s"


def _went_on(death: DeathResult, summary: Summary) -> bool:
    """Returns whether the replica ran again, not from the start, and the chief then ended with 0."""
    return death.back_after is not None and not death.began_again and summary.failure is None


def _name_of(kill: Kill) -> str:
    return str(kill.role) if kill.role is Role.MASTER else f"{kill.role}-{kill.index}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
