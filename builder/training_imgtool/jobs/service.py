"""What a service's own program tells about a job: whether it is there, how it stands, how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KEY = "imgtool-job"  # the label with the job's key
JOB = "{job}"  # in a command: what the service calls the job
Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A job as its service shows it.

    Attributes:
        name: what the service's commands call it.
        state: in the service's own word.
        key: under which it was submitted; None where the service does not say.
        succeeded: whether its chief did; None while the job goes on.
        code: the chief's exit code, where the service says it.
        whole: whether all of it is there: a run that was killed may have left a part.
    """

    name: str
    state: str
    key: str | None
    succeeded: bool | None
    code: int | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The commands that find, watch, log and stop a job, with `JOB` where they name it.

    Attributes:
        name: what the job is called before the service has named it.
        key: of the job: the same inputs, the same key.
        find: prints the job, if it is there.
        read: what `find` printed.
        past: prints it where `find` no longer does; a program that fails knows no past.
        none: what `find` says, and fails, where no job is there yet.
        end: ends what the service leaves running when the chief has ended.
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


def named(argv: Argv, name: str) -> Argv:
    """Puts the job's name into a command."""
    return tuple(word.replace(JOB, name) for word in argv)


def read_objects(text: str) -> list[dict[str, Any]]:
    """Reads JSON: a list, one object, or one object a line; raises ValueError."""
    if not text.strip():
        return []
    try:
        data = json.loads(text)
    except ValueError:
        data = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [item for item in (data if isinstance(data, list) else [data]) if isinstance(item, dict)]


def result_of(state: str, succeeded: Iterable[str], failed: Iterable[str]) -> bool | None:
    """Tells whether a state is a success or a failure; None for any other."""
    return True if state in succeeded else False if state in failed else None


def latest(standings: Iterable[Standing], key: str) -> Standing | None:
    """Chooses the job of this key among several of one name, else the first of another key."""
    found = sorted(standings, key=lambda each: each.key != key)
    return found[0] if found else None


def key_in(labels: Mapping[str, Any] | None) -> str | None:
    """Returns the key among a job's labels."""
    value = (labels or {}).get(KEY)
    return value if isinstance(value, str) else None
