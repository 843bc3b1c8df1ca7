"""Finds the libraries that the user's code and spec name, so that trimming does not remove them from images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training_imgtool.base.context.context import Context
from training_imgtool.base.context.entries import Entry, Kind, blocks
from training_imgtool.base.errors import LocalFileError
from training_imgtool.model.spec import ImageSpec
from training_imgtool.resolve.lock.trim import names_in_elf, names_in_file, names_in_source

_SOURCES = (".py", ".pyx", ".sh", ".pth")


def named_by_user(spec: ImageSpec, folder: Path, context: Context) -> dict[str, str]:
    """Maps each trimming rule that would remove a library the user names to the file or key with that name.

    Args:
        spec: the spec, whose environment variables, arguments, shell lines and templates may name libraries.
        folder: the spec's folder.
        context: the trainer's files, of which ELF files and source code may name libraries.

    Raises InputError when a file changed since the context was read, LocalFileError for a template.
    """
    named: dict[str, str] = {}
    for where, names in (*_settings(spec), *_templates(spec, folder), *_files(context)):
        for name in names:
            named.setdefault(name, where)
    return named


def _settings(spec: ImageSpec) -> Iterator[tuple[str, frozenset[str]]]:
    for name, value in spec.env.items():
        yield f"env.{name}", _in_text(value)
    for role, of_role in spec.roles.items():
        for name, value in of_role.env.items():
            yield f"roles.{role}.env.{name}", _in_text(value)
        yield f"roles.{role}.args", _in_text(" ".join(of_role.args or ()))
    for name, value in spec.job.env.items():
        yield f"job.env.{name}", _in_text(value)
    yield "args", _in_text(" ".join(spec.args))
    yield "run", _in_text("\n".join((*spec.run, *spec.run_after_packages)))


def _in_text(text: str) -> frozenset[str]:
    """Finds library names in a text: `LD_PRELOAD=libnvblas.so.12` names a library just as an ELF file does."""
    data = text.encode(errors="surrogateescape")
    return names_in_source(data) | names_in_elf([data])


def _templates(spec: ImageSpec, folder: Path) -> Iterator[tuple[str, frozenset[str]]]:
    names = {spec.template, *(of_role.template for of_role in spec.roles.values())}
    for name in sorted(filter(None, names)):
        path = folder / name
        if not path.is_file():
            continue  # the template's own check reports it
        try:
            yield name, _in_text(path.read_text(errors="surrogateescape"))
        except OSError as error:
            raise LocalFileError(f"{path}: cannot be read: {error.strerror}") from error


def _files(context: Context) -> Iterator[tuple[str, frozenset[str]]]:
    for entry in context.on_disk():
        if entry.kind is Kind.FILE and _is_code(entry):
            name = entry.path if entry.path.endswith(".so") or ".so." in entry.path else f"{entry.path}.py"
            yield entry.path, names_in_file(name, blocks(entry))


def _is_code(entry: Entry) -> bool:
    return entry.path.endswith((*_SOURCES, ".so")) or ".so." in entry.path
