"""Writes to the user: a complete result or nothing to stdout, notes and errors to stderr."""

from __future__ import annotations

import difflib
import errno
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from training_imgtool.base.errors import (
    FieldError,
    FieldListError,
    ImgtoolError,
    LocalFileError,
    UsageError,
    of_exception,
)
from training_imgtool.base.hidden import hide_secrets
from training_imgtool.base.sanitize import sanitize_lines
from training_imgtool.base.version import SCHEMA

_KINDS = re.compile(r"(?:note|warning|no counterpart): ")
_volume: dict[str, bool | None] = {"quiet": False, "verbose": None}  # what -q and -v say; None until they are read


class ReaderGone(Exception):  # noqa: N818 - a state, not an error
    """The program that read stdout has ended. imgtool does not undo what the command has done until then."""


def open_missing_streams() -> None:
    """Opens /dev/null for each standard descriptor that is closed, so that no other file gets the descriptor's number.

    stdin then reads nothing and stderr discards everything. stdout is open for reading only, so writing still fails.
    """
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # open(2) takes the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process exits
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def set_volume(*, quiet: bool, verbose: bool, requests: bool) -> None:
    """Limits this run to results, warnings and errors (`quiet`), or makes it write each HTTP request (`requests`)."""
    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other", hint="give one of them")
    _volume.update(quiet=quiet, verbose=verbose)
    if requests:
        import logging

        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(_show_request)
        logging.basicConfig(level=logging.DEBUG, format="%(message)s", handlers=[handler], force=True)


def _show_request(record: Any) -> bool:
    """Removes the query, which may contain a signature, from the URL of a request; drops records of other libraries."""
    record.msg, record.args = re.sub(r"\?\S+", "?…", sanitize_lines(record.getMessage())), ()
    return str(record.name) == "urllib3.connectionpool"


def emit(text: str) -> None:
    """Writes a result to stdout and flushes it; raises LocalFileError, or ReaderGone for a broken pipe."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _redirect_to_null(sys.stdout.fileno())
        raise ReaderGone from None
    except (OSError, ValueError) as error:
        _redirect_to_null(1)
        raise LocalFileError(f"cannot write the result to stdout: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        return "it is closed"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def emit_json(document: dict[str, Any], *, indent: int | None = 2) -> None:
    """Writes one JSON document, or an event of `run --watch`, to stdout."""
    numbered = {"schema": SCHEMA, **document} if {"ok", "event"} & {*document} else document
    emit(json.dumps(numbered, indent=indent, ensure_ascii=False) + "\n")


def emit_result(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Writes a result to stdout, as a JSON document or as text."""
    emit_json(document) if as_json else emit(text)


def emit_note(text: str) -> None:
    """Writes a note to stderr; `text` may begin with its kind, such as `warning: `."""
    kind = _KINDS.match(text)
    if not _volume["quiet"] or (kind and kind[0] != "note: "):
        emit_error(f"{text if kind else f'note: {text}'}\n")


def emit_error(text: str) -> None:
    """Writes to stderr. A closed or full stderr does not fail the command."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def report_error(error: Exception, arguments: Sequence[str]) -> int:
    """Prints `error` to stderr, and with --json also as a document to stdout; returns the error's exit code."""
    failure = error if isinstance(error, ImgtoolError) else translate(error)
    is_early_bug = _volume["verbose"] is None and failure.exit_code == ImgtoolError.exit_code
    if _volume["verbose"] or is_early_bug:
        emit_error("".join(traceback.format_exception(error)))
    emit_failure(failure)
    _emit_result(error_data(failure), arguments)
    return failure.exit_code


def report_stop(reason: str, code: int, arguments: Sequence[str]) -> int:
    """Reports that a signal ended the run, and returns `code`."""
    emit_error("\nimgtool: stopped\n")
    error = {"code": code, "message": reason, "retryable": False, "hint": None, "details": [], "fields": []}
    _emit_result(error, arguments)
    return code


def _emit_result(error: dict[str, Any], arguments: Sequence[str]) -> None:
    """Writes the failure to stdout as the result if --json is given. A closed stdout does not change the exit code."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" not in options:
        return
    try:
        if "--watch" in options:  # whose output is one object per line
            emit_json({"event": "stopped", "error": error}, indent=None)
        else:
            emit_json({"ok": False, "error": error})
    except (ReaderGone, LocalFileError):
        return


def emit_failure(failure: ImgtoolError) -> None:
    """Writes an error to stderr: the message, the details, and what to do."""
    lines = [f"Error: {sanitize_lines(str(failure))}"]
    lines += [f"  {sanitize_lines(line)}" for line in failure.details]
    if failure.hint:
        lines.append(f"Try: {sanitize_lines(failure.hint)}")
    emit_error("\n".join(lines) + "\n")


def error_data(failure: ImgtoolError) -> dict[str, Any]:
    """Returns the value of `error` in a JSON document, which has the same keys for every failure."""
    fields = failure.errors if isinstance(failure, FieldListError) else (failure,)
    fields = tuple(error for error in fields if isinstance(error, FieldError))
    return {
        "code": failure.exit_code,
        "message": hide_secrets(str(failure)),
        "retryable": failure.retryable,
        "hint": hide_secrets(failure.hint or next((error.hint for error in fields if error.hint), "")) or None,
        "details": list(map(hide_secrets, failure.details)),
        "fields": [
            {
                "field": error.field,
                "location": error.location,
                "message": hide_secrets(error.message),
                "hint": error.hint and hide_secrets(error.hint),
            }
            for error in fields
        ],
    }


def translate(error: Exception) -> ImgtoolError:
    """Converts errors of typer and the operating system to imgtool's; any other exception becomes a bug report."""
    if isinstance(error, typer.TyperException):
        context, wrong = getattr(error, "ctx", None), getattr(error, "option_name", "")
        elsewhere = _find_elsewhere(context, wrong) or _explain_option(context, error)
        near = () if elsewhere else getattr(error, "possibilities", None) or ()
        if near:  # suggest --push, which publishes images, only for a very similar name
            able = difflib.get_close_matches("--push", [wrong], cutoff=0.8)
            near = [name for name in near if name != "--push" or able]
        error.possibilities = near  # type: ignore[attr-defined]
        usage = f"{context.command_path if context else 'imgtool'} --help"
        variable = getattr(getattr(error, "param", None), "envvar", None)
        usage += f"; the value may come from {variable}" if variable and variable in os.environ else ""
        return UsageError(error.format_message(), hint=elsewhere or usage)
    if isinstance(error, typer.Abort):
        return UsageError("nothing was confirmed")
    return of_exception(error)


def _find_elsewhere(context: Any, wrong: str) -> str | None:
    """Returns what another program's option is here; None if the verb lacks the option at the start of the hint."""
    from training_imgtool.model.value_rules import find_cure

    verb = context.command if context else None
    hint = find_cure("options", f"{context.info_name if context else ''} {wrong}") or find_cure("options", wrong) or ""
    own = {name for param in (verb.params if verb else ()) for name in param.opts}
    return hint if hint and (hint[:2] != "--" or hint.split()[0] in own) else None


def _explain_option(context: Any, error: Any) -> str | None:
    """Returns how to write the option in `error`: with a value, once per value, or after the verb."""
    wrong = getattr(error, "option_name", "")
    verbs = getattr(context and context.command, "commands", {}).values()
    if any(wrong in param.opts for verb in verbs for param in verb.params):
        return f"write {wrong} after the verb: imgtool VERB {wrong}"
    param = next((param for param in (context.command.params if context else ()) if wrong in param.opts), None)
    if param is not None:
        return ": ".join(param.get_help_record(context))
    list_ = re.search(r"'([^']+,[^']+)' is not one of", str(error))
    if list_ and (repeated := getattr(error, "param", None)) and repeated.multiple:
        return "repeat the option: " + " ".join(f"{repeated.opts[0]} {word}" for word in list_[1].split(","))
    return None


def _redirect_to_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, descriptor)
    except OSError:
        return
    finally:
        os.close(null)
