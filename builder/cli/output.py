"""What reaches the user: results on stdout, exactly once and completely; errors on stderr, one shape for all."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from builder.errors import ImgtoolError, LocalFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

BUG = 70


class Broken(Exception):  # noqa: N818 - a state, not an error: the reader of our output went away
    """Whoever read stdout has gone; what was done stays done."""


def emit(text: str) -> None:
    """Writes a result to stdout and makes sure that it left; raises LocalFileError (exit 9) when it cannot."""
    if sys.stdout is None:
        raise LocalFileError("the result could not be written: stdout is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _to_null(sys.stdout.fileno())
        raise Broken from None
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        _to_null(1)
        raise LocalFileError(f"the result could not be written to stdout: {cause}") from error


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
    failure = error if isinstance(error, ImgtoolError) else _translated(error)
    if failure is None:
        return _bug(error, arguments)
    _print(failure)
    if "--json" in arguments:
        emit_json({"ok": False, "error": _as_data(failure)})
    return failure.exit_code


def _print(failure: ImgtoolError) -> None:
    from builder.terminal import safe

    lines = [f"Error: {safe(str(failure))}"]
    lines += [f"  {safe(line)}" for line in failure.details]
    if failure.hint:
        lines.append(f"Try: {safe(failure.hint)}")
    complain("\n".join(lines) + "\n")


def _as_data(failure: ImgtoolError) -> dict[str, Any]:
    return {
        "code": failure.exit_code,
        "message": str(failure),
        "retryable": failure.retryable,
        "hint": failure.hint,
        "details": list(failure.details),
    }


def _translated(error: Exception) -> ImgtoolError | None:
    """The command-line library's own errors, and the few of the operating system that need no context."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return UsageError(error.format_message(), hint="imgtool --help, or imgtool VERB --help")
    if type(error).__name__ == "Abort":
        return UsageError("nothing was confirmed")
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EMFILE}:
        name = f" {error.filename}" if error.filename else ""
        return LocalFileError(f"{error.strerror}:{name}")
    return None


def _bug(error: Exception, arguments: Sequence[str]) -> int:
    import traceback

    complain(f"Error: this is a bug in imgtool: {type(error).__name__}: {error}\n")
    if os.environ.get("IMGTOOL_DEBUG"):
        complain("".join(traceback.format_exception(error)))
    else:
        complain("Try: the same command with IMGTOOL_DEBUG=1 prints where; please report it with that.\n")
    if "--json" in arguments:
        emit_json({"ok": False, "error": {"code": BUG, "message": str(error), "retryable": False, "hint": None}})
    return BUG


def _to_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, descriptor)
    except OSError:
        return
    finally:
        os.close(null)
