"""Reads the files that images are made from: specs and the code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from training_imgtool.base.context.code_folders import CodeFolders
from training_imgtool.base.context.context import Context
from training_imgtool.base.context.scan import remembered_hashes
from training_imgtool.base.errors import FieldError, FieldListError, LocalFileError, UsageError
from training_imgtool.base.hidden import remember_secret
from training_imgtool.base.secret_text import detect_command_secret, detect_named_secret
from training_imgtool.base.settings import Settings
from training_imgtool.model.load import SpecFile, find, load


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChoice:
    """The command-line options that concern the spec.

    Attributes:
        path: the file or its folder; None searches for a spec.
        values: values of keys, which replace those in the file.
        registry: a registry, which replaces the spec's.
        locked: whether to refuse a missing or stale lock instead of writing one.
    """

    path: Path | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    registry: str | None = None
    locked: bool = False

    def open(self) -> SpecFile:
        """Finds and loads the spec; raises what `open_spec` raises."""
        return open_spec(self.path, self.values)


ANY_SPEC = SpecChoice()


def open_spec(where: Path | None, values: Mapping[str, str] | None = None) -> SpecFile:
    """Finds and loads the spec that the command line names; `values` replace the values of some keys."""
    try:
        cwd = Path.cwd()
    except OSError as error:
        raise LocalFileError("the current folder no longer exists", hint="cd to one that does") from error
    with _blaming(values or {}):
        return load(find(where, cwd), values)


@contextmanager
def _blaming(values: Mapping[str, str]) -> Iterator[None]:
    """Replaces errors about values from `--set` by a UsageError, because the file does not contain these values."""
    try:
        yield
    except FieldListError as errors:
        wrong = [(key, each) for each in errors.errors for key in values if f"{key}.".startswith(f"{each.field}.")]
        if not wrong:
            raise
        for field, text in values.items():
            if detect_named_secret(field.rpartition(".")[2], text) or detect_command_secret(text):
                remember_secret(text)
        texts = [f"--set {key}={values[key]}: {error.message}" for key, error in wrong]
        raise UsageError(texts[0], hint=_adapt_hint(*wrong[0]), details=tuple(texts[1:])) from errors


def _adapt_hint(key: str, error: FieldError) -> str | None:
    """Returns the hint of an error in a spec for a value of --set, which is one scalar."""
    if one := re.fullmatch(r"write \{(\w+): ([^,{}]+)\}", error.hint or ""):
        return f"--set {key}.{one[1]}={one[2]}"
    is_whole = (error.hint or "").startswith(("write {", "write ["))
    return f"change {key} in the spec, because --set gives one value" if is_whole else error.hint


def read_code(spec_file: SpecFile, settings: Settings, *, everything: bool = False) -> Context:
    """Reads the code and the spec's `files`, or all files that a COPY can name; raises what `CodeFolders` raises."""
    entry = spec_file.entry
    with remembered_hashes(settings.cache, spec_file.folder) as hashes:
        folders = CodeFolders(
            spec=spec_file.path,
            top=entry.top,
            paths=entry.paths,
            allow_secrets=spec_file.spec.allow_secrets,
            hashes=hashes,
            cache=settings.cache,
        )
        return folders.read_all() if everything else folders.read(tuple(spec_file.spec.files))
