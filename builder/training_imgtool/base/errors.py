"""The errors that users see: one class per exit code, each with a message and a hint."""

from __future__ import annotations

import copyreg
import errno
from typing import Any, ClassVar

_MACHINE_ERRORS = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EBADF})


class ImgtoolError(Exception):
    """An error that users see; each subclass sets the exit code.

    Args:
        message: what imgtool found and what it expected; one line if possible.
        hint: what the user can do, or None.
        details: further lines, such as the last lines of a build step.
    """

    exit_code: ClassVar[int] = 70
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        """Tells pickle to set the attributes without `__init__`, whose parameters differ from class to class."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UsageError(ImgtoolError):
    """The command line, an environment variable or the user's configuration is wrong."""

    exit_code = 2


class InputError(ImgtoolError):
    """A spec, lock, template, context or job file is wrong, or the images for a job file are missing."""

    exit_code = 3


class ImageMissingError(InputError):
    """The registry lacks images that are made from the current inputs."""


class FieldError(InputError):
    """A value in the spec is wrong.

    Args:
        field: the key's path, such as `roles.worker.gpus.count`.
        location: `file:line:column` (1-based), or None; `SpecFile.located` adds it.
    """

    def __init__(self, message: str, *, field: str, location: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.location = location

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        return f"{where}{self.field}: {self.message}" if self.field else f"{where}{self.message}"


class FieldListError(InputError):
    """Several values in the spec are wrong; the message has a line for each value."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(f"{error}\n  {error.hint}" if error.hint else str(error) for error in self.errors)


class BuildFailedError(ImgtoolError):
    """A step of the Dockerfile failed."""

    exit_code = 4


class EngineUnavailableError(ImgtoolError):
    """No engine answers, or the engine failed during a build."""

    exit_code = 5
    retryable = True


class NeedsEngineError(EngineUnavailableError):
    """Only an engine can build this stage. The message gives the reason; users see the message if no engine answers."""


class RegistryRefusedError(ImgtoolError):
    """The registry, a package index or an archive refused the request permanently."""

    exit_code = 6


class CredentialsError(ImgtoolError):
    """Credentials are missing, wrong or expired. The message names the sources that imgtool tried, never a secret."""

    exit_code = 7


class TemporaryError(ImgtoolError):
    """A temporary failure lasted longer than all retries."""

    exit_code = 8
    retryable = True


class LocalFileError(ImgtoolError):
    """imgtool cannot read or write a file on this machine, or the machine has too little memory."""

    exit_code = 9


class VerificationError(ImgtoolError):
    """A check failed (such as a wrong digest or version, or a secret in a layer), or a run failed."""

    exit_code = 10


class PackageGoneError(VerificationError):
    """The lock names a version of a Debian package that the base's archives no longer have."""


def of_exception(error: Exception) -> ImgtoolError:
    """Converts an error of the operating system about a file, a disk, memory or threads; any other error is a bug."""
    if isinstance(error, OSError) and error.errno and (error.filename or error.errno in _MACHINE_ERRORS):
        cause = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
        return LocalFileError(f"{error.filename or 'a file, or the output, cannot be written'}: {cause}")
    if isinstance(error, MemoryError) or "can't start new thread" in str(error):
        return LocalFileError(
            f"the machine refused imgtool more memory or another thread ({error or 'out of memory'})",
            hint="raise the limit of the shell (ulimit -v, ulimit -u) or of the container",
        )
    return ImgtoolError(
        f"this is a bug in imgtool: {type(error).__name__}: {error}",
        hint="run the same command with --verbose, and report what it prints",
    )
