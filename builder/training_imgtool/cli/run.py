"""`imgtool run`: runs the images as a cluster of containers on this machine."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_imgtool.base.errors import UsageError
from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit_note, emit_result, error_data, report_error
from training_imgtool.model.value_rules import find_cure

if TYPE_CHECKING:
    from training_imgtool.base.progress import Event, Progress
    from training_imgtool.local.losses import LossReader
    from training_imgtool.local.ready import Ready, Request
    from training_imgtool.local.replicas import Replica
    from training_imgtool.local.summary import Summary

_COLOURS = {"master": "32", "worker": "36", "ps": "35", "evaluator": "33"}  # ECMA-48: SGR
_ARGS = "imgtool.args"  # where the context keeps what follows `--`


class _Command(opt.Verb):
    """Separates the words after `--`. Without a SPEC, the parser would read the first of these words as SPEC."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_ARGS] = tuple(args[cut + 1 :])
            args = args[:cut]
        words = list(args)  # the parser empties its list
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            wrong = getattr(error, "option_name", None)
            if wrong is None or find_cure("options", f"run {wrong}"):
                raise
            given = next((word for word in words if word.partition("=")[0] == wrong), wrong)
            near = get_close_matches(wrong, getattr(error, "possibilities", None) or (), n=1, cutoff=0.8)
            hint = (
                f"{near[0]}, or, to pass the option to your program" if near else "to pass the option to your program"
            )
            raise UsageError(f"imgtool run has no option {wrong}", hint=f"{hint}, write -- {given}") from error

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


COMMAND = _Command


def run(
    ctx: typer.Context,
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    workers: Annotated[int | None, typer.Option(min=0, metavar="N", help="How many workers to start.")] = None,
    ps: Annotated[int | None, typer.Option(min=0, metavar="N", help="How many parameter servers to start.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="PyTorch: how many processes each replica has [default: 1].")
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="SERVICE",
            help="Act like ai-platform, vertex, tfjob or local.",
            autocompletion=lambda: ["ai-platform", "vertex", "tfjob", "local"],
        ),
    ] = None,
    job_dir: Annotated[
        str | None,
        typer.Option("--job-dir", metavar="DIR", help="Folder for job results [default: ./job]."),
    ] = None,
    kill: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE[:INDEX]@TIME", help="Kill a replica at TIME, such as worker:1@30s."),
    ] = None,
    preempt: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE[:INDEX]@TIME", help="Preempt a replica, such as ps:0@30s/grace=9s."),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart", help="Restart a program that fails before its first checkpoint, as the service does."
        ),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Restart the cluster when a file changes.")] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write an HTML page about the run to FILE."),
    ] = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Run the images as a cluster on this machine. ARGS replace the spec's args."""
    from training_imgtool.app.images import run_images
    from training_imgtool.local.ready import Request
    from training_imgtool.local.rehearsal import parse_kill
    from training_imgtool.local.replicas import parse_service
    from training_imgtool.local.summary import as_data, as_lines, error_of

    if report is not None:
        _check_report(report)
    if watch and report is not None:
        raise UsageError("--report is for one run, and --watch starts many", hint="leave one of them out")
    if watch and preempt:
        raise UsageError("--preempt is for one run, and --watch starts many", hint="leave one of them out")
    reader = _make_reader() if report else None
    request = Request(
        service=parse_service(service) if service else None,
        workers=workers,
        ps=ps,
        processes=processes,
        args=ctx.meta.get(_ARGS),
        job_dir=Path(job_dir) if job_dir else None,
        kills=(
            *(parse_kill(text) for text in kill or ()),
            *(parse_kill(text, preempted=True) for text in preempt or ()),
        ),
        restart=restart,
    )
    choice = opt.read_choice(spec, changes, registry, locked=locked)
    if watch:
        from training_imgtool.app.images import watch_images
        from training_imgtool.cli.watch import Screen

        watch_images(
            choice,
            request,
            machine.settings(),
            lambda: machine.progress("plain" if progress in {"auto", "tty"} else progress),
            lambda ready: _output(progress, ready, None),
            show=Screen(as_json=as_json, quiet=progress == "quiet"),
        )
        return
    summary = run_images(
        choice,
        request,
        machine.settings(),
        lambda: machine.progress(progress),
        lambda ready: _output(progress, ready, reader),
    )
    error = error_of(summary)
    code = report_error(error, ()) if error else 0
    document = as_data(summary) | ({"error": error_data(error)} if error else {})
    emit_result(document, as_lines(summary), as_json=as_json)
    if report is not None and reader is not None:
        _write_report(report, summary, reader)
    if not code and progress != "quiet":
        emit_note(f"next: {_next(spec, choice.values, summary, request)}")
    if code:
        raise typer.Exit(code)


def _check_report(path: Path) -> None:
    """Checks, before anything runs, that imgtool can write the report."""
    from training_imgtool.base.atomic_files import check_writable

    if opt.is_stdout(path):
        raise UsageError("--report needs a file, because stdout gets the summary", hint="--report run.html")
    check_writable(path)


def _make_reader() -> LossReader:
    from training_imgtool.local.losses import LossReader

    return LossReader()


def _write_report(path: Path, summary: Summary, reader: LossReader) -> None:
    from training_imgtool.base.atomic_files import write_atomic
    from training_imgtool.local.report import render

    write_atomic(path, render(summary, reader.curves()).encode())


def _next(spec: Path | None, values: Mapping[str, str], summary: Summary, request: Request) -> str:
    """Returns the next command for the user: `config` if all images came from the registry, otherwise `push`."""
    import shlex

    where = f" {shlex.quote(str(spec))}" if spec else ""
    where += "".join(f" --set {shlex.quote(f'{key}={value}')}" for key, value in values.items())
    if all(result.image.source == "registry" for result in summary.replicas):
        target = f" --target {request.service}" if request.service and request.service != "local" else ""
        return f"imgtool config{where}{target} -o config.yaml    # the job file for the images that ran"
    return f"imgtool push{where}    # to the registry from which the job pulls"


@contextmanager
def _output(mode: str, ready: Ready, reader: LossReader | None) -> Iterator[Progress]:
    """Opens the view of the replicas' output. With a `reader`, also passes the output to the reader."""
    with _show(mode, ready) as show:
        if reader is None:
            yield show
        else:
            reader.after = show
            yield reader


@contextmanager
def _show(mode: str, ready: Ready) -> Iterator[Progress]:
    """Opens the view for `mode`: JSON lines, nothing, or the replicas' lines, each after its replica's name."""
    if mode in {"json", "quiet"}:
        with machine.progress(mode) as view:
            yield view
        return
    yield ReplicaLines(sys.stderr, os.environ, {replica.name: replica for replica in ready.cluster.replicas})


class ReplicaLines:
    """Writes each line after its replica's name; in colour on a terminal or with FORCE_COLOR, but not with NO_COLOR."""

    def __init__(self, stream: Any, environ: Mapping[str, str], replicas: Mapping[str, Replica]) -> None:
        from training_imgtool.cli.progress_lines import Writer

        self._writer = Writer(stream)
        self._replicas = replicas
        self._width = max(map(len, replicas), default=0)
        able = self._writer.isatty() and environ.get("TERM", "dumb") != "dumb"
        forced = environ.get("FORCE_COLOR", "") not in {"", "0", "false"}
        self._colour = (able or forced) and not environ.get("NO_COLOR")
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        from training_imgtool.base.progress import LogLine, Note, Step
        from training_imgtool.base.sanitize import sanitize_line

        match event:
            case LogLine(subject, text):
                line = with_name(text, self._replicas[subject], width=self._width, colour=self._colour)
            case Note(text):
                line = f"note: {sanitize_line(text)}"
            case Step(subject, text):
                line = f"[{sanitize_line(subject)}] {sanitize_line(text)}"
            case _:
                return
        with self._lock:
            self._writer.line(line)


def with_name(line: str, replica: Replica, *, width: int, colour: bool) -> str:
    """Formats `worker-0 | LINE`; pads the name to `width`, and with `colour` prints the name in its role's colour."""
    shown = f"{replica.name:<{width}} |"
    return f"\x1b[{_COLOURS[replica.role]}m{shown}\x1b[0m {line}" if colour else f"{shown} {line}"
