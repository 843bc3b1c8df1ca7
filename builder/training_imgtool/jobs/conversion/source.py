"""A job file, from which what is understood is taken; what is left is what a spec does not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training_imgtool.core.errors import InputError
from training_imgtool.jobs.model import Document, Path, format_path, without_none
from training_imgtool.spec.model import Role

ROLES = {"chief": Role.MASTER, "master": Role.MASTER, "worker": Role.WORKER, "ps": Role.PS, "evaluator": Role.EVALUATOR}
OWN_VARIABLES = {"TF_CONFIG", "CLUSTER_SPEC", "TF_TASK_INDEX"}


class Source:
    """A document, from which what is understood is taken."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def take(self, *path: str | int) -> Any:
        """Takes the value at a path; None where there is none."""
        parent = self.at(*path[:-1])
        if isinstance(parent, dict):
            return parent.pop(path[-1], None)
        return None

    def at(self, *path: str | int) -> Any:
        """Returns the value at a path, which stays."""
        value = self.data
        for key in path:
            try:
                value = value[key]
            except (LookupError, TypeError):
                return None
        return value

    def drop(self, value: Any, *path: str | int) -> None:
        """Takes what the target writes by itself; another value stays, and is named."""
        if self.at(*path) == value:
            self.take(*path)

    def sub(self, *path: str | int) -> Source:
        """Returns the part at a path, whose keys are taken from the whole."""
        return Source(self.at(*path))

    def left(self) -> tuple[str, ...]:
        """Lists the paths of all that was not taken."""
        return tuple(format_path(path) for path in _leaves(self.data, ()))


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, (*path, key))
    elif value is not None:
        yield path


def without_empty(role: Document) -> Document:
    """Leaves out what a role does not say; an empty list of arguments says something."""
    return {key: item for key, item in role.items() if item is not None and (item not in ({}, []) or key == "args")}


def role_of(word: str) -> Role:
    """Returns the role that a service calls so; raises InputError for any other word."""
    if word.lower() not in ROLES:
        raise InputError(f"{word!r} is not a role of TensorFlow: expected {', '.join(ROLES)}")
    return ROLES[word.lower()]


def with_times(job: Document, times: Document) -> Document:
    """Puts the time limits into the job, and leaves out what it does not say."""
    made = {**job, "scheduling": without_none(times)}
    return {key: item for key, item in made.items() if item is not None and item not in ({}, [])}


def unescaped(words: Any) -> list[str]:
    """Lists a command's words, as the program gets them."""
    return [plain_text(str(word)) for word in ([words] if isinstance(words, str) else words or [])]


def plain_text(text: str) -> str:
    """Undoes what Kubernetes and Compose do: `$$` is `$`."""
    return text.replace("$$", "$")


def as_text(value: Any) -> str | None:
    """Returns a number as text; None for nothing."""
    return None if value is None else str(value)


def duration(seconds: Any) -> str | None:
    """Returns whole seconds as a spec has them."""
    return f"{seconds}s" if isinstance(seconds, int) else None
