"""Every failure a user can see: one class per exit code, with what, where and what to do."""

from __future__ import annotations

from typing import ClassVar


class ImgtoolError(Exception):
    """A failure with an exit code of its own.

    Args:
        message: what happened, with what was found and what was expected; one line where possible.
        hint: what to do about it, or None.
        details: further lines, such as the last lines of a build step.
    """

    exit_code: ClassVar[int] = 70
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details


class UsageError(ImgtoolError):
    """The command line or the environment asks for something that does not exist."""

    exit_code = 2


class InputError(ImgtoolError):
    """A spec, template or context is wrong; nothing was touched."""

    exit_code = 3


class FieldError(InputError):
    """A value in the spec is wrong.

    Args:
        field: the key's path, such as `roles.worker.gpus.count`.
        location: `file:line:column` (1-based) where known; a loaded spec adds it to errors raised further in.
    """

    def __init__(self, message: str, *, field: str, location: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.location = location

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        return f"{where}{self.field}: {self.message}" if self.field else f"{where}{self.message}"


class FieldListError(InputError):
    """Several values in the spec are wrong; each has its own line."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(f"{error}\n  {error.hint}" if error.hint else str(error) for error in self.errors)


class BuildFailedError(ImgtoolError):
    """A step of the user's Dockerfile failed."""

    exit_code = 4


class EngineUnavailableError(ImgtoolError):
    """No engine answers, or it broke while working."""

    exit_code = 5
    retryable = True


class NeedsEngineError(EngineUnavailableError):
    """Only an engine can build this stage; the message says why. Without an engine it is the user's error message."""


class RegistryRefusedError(ImgtoolError):
    """The registry said no for good."""

    exit_code = 6


class CredentialsError(ImgtoolError):
    """Credentials are missing, wrong or expired; the message names the sources tried, never a secret."""

    exit_code = 7


class TemporaryError(ImgtoolError):
    """A passing fault outlasted every retry."""

    exit_code = 8
    retryable = True


class LocalFileError(ImgtoolError):
    """A file on this machine cannot be read or written."""

    exit_code = 9


class VerificationError(ImgtoolError):
    """What is there is not what was asked for: a wrong digest or version, a secret in a layer, a run that failed."""

    exit_code = 10
