"""Reads what a service's program, such as kubectl, reports about a job: its existence, its state, and its result."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from training_imgtool.base.errors import CredentialsError, ImgtoolError, InputError, TemporaryError

KEY = "imgtool-job"  # the label with the job's key
JOB = "{job}"  # in a command, the placeholder for the service's name of the job
Argv = tuple[str, ...]
_CAUSE = re.compile(r"(?i)(?:\w+: )?(?:error|fatal)\b")
_BOILERPLATE = re.compile(  # lines of gcloud and kubectl that do not explain the cause
    r"If you would like|gcloud (?:feedback|info)|To check gcloud|Please run|\$ |to obtain|If you have already|to select"
    r"|E\d{4} .*memcache|Using endpoint"
)
_KINDS: tuple[tuple[str, type[ImgtoolError]], ...] = (  # for a second try, for a login; the input causes all others
    (r"exceeded quota:|denied the request", InputError),  # with 403, and no login helps
    (
        (
            r"connection (?:refused|reset)|resolve|name or service not known|no such host|timed out|deadline exceeded"
            r"|unreachable|unable to contact|unable to handle|temporar|unavailable|cannot connect to the docker daemon"
            r"|resource_exhausted|too ?many ?requests|\b(?:429|50[0234])\b|handshake|\bEOF\b|internal ?error"
            r"|failed calling webhook|no endpoints available|server is currently|etcdserver"
        ),
        TemporaryError,
    ),
    (
        (
            r"active account|auth login|credential|unauthori[sz]ed|unauthenticated|forbidden|permission.denied"
            r"|access denied|log(?:ged)? in|reauth|\b40[13]\b|invalid account"
        ),
        CredentialsError,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a job, as its service reports it.

    Attributes:
        name: the job's name in the service's commands.
        state: the state in the service's own words.
        key: the key of the submitted job; None if the service does not report it.
        succeeded: whether the chief succeeded; None while the job runs or waits.
        code: the chief's exit code, if the service reports it.
        cause: the service's reason for a failure.
        whole: whether all objects of the job exist; a killed `submit` may have created only some.
        others: other running jobs with the same inputs, which a parallel `submit` created.
    """

    name: str
    state: str
    key: str | None
    succeeded: bool | None
    code: int | None = None
    cause: str | None = None
    whole: bool = True
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a replica does not run, or how it ended, in the service's own words."""

    replica: str
    reason: str
    message: str | None = None
    code: int | None = None

    def __str__(self) -> str:
        code = f", ended with {self.code}" if self.code is not None else ""
        return f"{self.replica}: {self.reason}{code}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The commands that find, watch and stop a job and print its log, with `JOB` in place of the job's name.

    Attributes:
        name: the job's name before the service has chosen one.
        key: the job's key, which depends only on the inputs.
        find: prints the job if it exists.
        read: reads the output of `find`.
        past: prints a job that `find` no longer shows; if this command fails, there is no such job.
        none: the error of `find` when no job exists yet.
        end: ends the replicas that the service leaves running after the chief has ended.
        replicas: prints the replicas, if these show troubles that `find` does not.
        troubles: reads the output of `replicas`.
    """

    name: str
    key: str
    find: Argv
    read: Callable[[str], Standing | None]
    watch: Argv
    logs: Argv
    stop: Argv
    past: Argv = ()
    none: str | None = None
    end: Argv = ()
    replicas: Argv = ()
    troubles: Callable[[str], Iterable[Trouble]] = lambda _text: ()


def named(argv: Argv, name: str) -> Argv:
    """Replaces `JOB` in a command with the job's name."""
    return tuple(word.replace(JOB, name) for word in argv)


def read_objects(text: str) -> list[dict[str, Any]]:
    """Parses JSON objects: a list, a single object, or one object per line; raises ValueError for other text."""
    if not text.strip():
        return []
    try:
        data = json.loads(text)
    except ValueError:
        data = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [item for item in (data if isinstance(data, list) else [data]) if isinstance(item, dict)]


def result_of(state: str, succeeded: Iterable[str], failed: Iterable[str]) -> bool | None:
    """Returns True for a state in `succeeded`, False for a state in `failed`, and None for any other state."""
    return True if state in succeeded else False if state in failed else None


def latest(standings: Iterable[Standing], key: str) -> Standing | None:
    """Chooses among jobs with the same name: the first job with `key`, or the first job if none has `key`."""
    found = sorted(standings, key=lambda each: each.key != key)
    others = tuple(each.name for each in found[1:] if each.key == key and each.succeeded is None)
    return replace(found[0], others=others) if found else None


def program_error(argv: Argv, code: int, said: str) -> ImgtoolError:
    """Makes the error for a service's program that failed; the class tells whether a login or a retry may help."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _BOILERPLATE.match(line.strip())]
    first = next((index for index, line in enumerate(lines) if _CAUSE.match(line)), max(0, len(lines) - 1))
    cause, *more = lines[first : first + 4] or [shlex.join(argv)]
    text = "\n".join((cause, *more))
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, text, re.IGNORECASE)), InputError)
    hint = "log in with that program, or choose another of its accounts" if kind is CredentialsError else None
    if kind is InputError and "quota" in text.lower():
        hint = "ask for less, or wait until other jobs have ended"
    return kind(f"{argv[0]} ended with {code}: {cause}", hint=hint, details=tuple(more))


def key_in(labels: Mapping[str, Any] | None) -> str | None:
    """Returns the job's key from the job's labels; None if they do not contain it."""
    value = (labels or {}).get(KEY)
    return value if isinstance(value, str) else None
