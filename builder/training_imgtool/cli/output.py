"""What reaches the user: results on stdout, exactly once and completely; errors on stderr, one shape for all."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import FieldError, FieldListError, ImgtoolError, LocalFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_OF_THE_MACHINE = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EBADF})


class Broken(Exception):  # noqa: N818 - a state, not an error: the reader of our output went away
    """Whoever read stdout has gone; what was done stays done."""


def open_missing() -> None:
    """Puts something behind each standard descriptor that is closed, or files opened later would get its number.

    stdin reads nothing and stderr swallows all; stdout is opened for reading, so that writing to it still fails.
    """
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor; for good
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def emit(text: str) -> None:
    """Writes a result to stdout and makes sure that it left; raises LocalFileError (exit 9) when it cannot."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _to_null(sys.stdout.fileno())
        raise Broken from None
    except (OSError, ValueError) as error:
        _to_null(1)
        raise LocalFileError(f"the result could not be written to stdout: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        return "it is closed"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def emit_json(document: Any) -> None:
    """Writes one JSON document to stdout."""
    emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def note(text: str) -> None:
    """Says something to the user on stderr that is not the result."""
    complain(f"imgtool: {text}\n")


def complain(text: str) -> None:
    """Writes to stderr; a closed or full stderr is no reason to fail."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def report(error: Exception, arguments: Sequence[str]) -> int:
    """Prints `error` and returns its exit code. With --json the result is a document too, on stdout."""
    if type(error).__name__ == "NoArgsIsHelpError":
        complain(f"{error}\n")
        return UsageError.exit_code
    if os.environ.get("IMGTOOL_DEBUG"):
        import traceback

        complain("".join(traceback.format_exception(error)))
    failure = error if isinstance(error, ImgtoolError) else _translated(error)
    _print(failure)
    _tell(_as_data(failure), arguments)
    return failure.exit_code


def report_stop(reason: str, code: int, arguments: Sequence[str]) -> int:
    """Says that a signal ended the run; returns its exit code."""
    complain("\nimgtool: stopped\n")
    _tell({"code": code, "message": reason, "retryable": False, "hint": None, "details": [], "fields": []}, arguments)
    return code


def _tell(error: dict[str, Any], arguments: Sequence[str]) -> None:
    """With --json: the failure as the result. When that cannot be written the exit code says enough."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" not in options:
        return
    try:
        emit_json({"ok": False, "error": error})
    except (Broken, LocalFileError):
        return


def _print(failure: ImgtoolError) -> None:
    from training_imgtool.core.sanitize import sanitize_lines

    lines = [f"Error: {sanitize_lines(str(failure))}"]
    lines += [f"  {sanitize_lines(line)}" for line in failure.details]
    if failure.hint:
        lines.append(f"Try: {sanitize_lines(failure.hint)}")
    complain("\n".join(lines) + "\n")


def _as_data(failure: ImgtoolError) -> dict[str, Any]:
    fields = failure.errors if isinstance(failure, FieldListError) else (failure,)
    fields = tuple(error for error in fields if isinstance(error, FieldError))
    return {
        "code": failure.exit_code,
        "message": str(failure),
        "retryable": failure.retryable,
        "hint": failure.hint or next((error.hint for error in fields if error.hint), None),
        "details": list(failure.details),
        "fields": [
            {"field": error.field, "location": error.location, "message": error.message, "hint": error.hint}
            for error in fields
        ],
    }


def _translated(error: Exception) -> ImgtoolError:
    """The command-line library's own errors and the operating system's in our shape; anything else is a bug."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return UsageError(error.format_message(), hint="imgtool --help, or imgtool VERB --help")
    if type(error).__name__ == "Abort":
        return UsageError("nothing was confirmed")
    if isinstance(error, OSError) and error.errno and (error.filename or error.errno in _OF_THE_MACHINE):
        return LocalFileError(f"{error.filename or 'a file, or the output, cannot be written'}: {_cause(error)}")
    return ImgtoolError(
        f"this is a bug in imgtool: {type(error).__name__}: {error}",
        hint="the same command with IMGTOOL_DEBUG=1 prints where; please report it with that",
    )


def _to_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, descriptor)
    except OSError:
        return
    finally:
        os.close(null)
