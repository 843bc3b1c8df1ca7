"""Makes the recipe of each role's image from the spec, the lock and the code."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from training_imgtool.base.context.context import IGNORE_FILE, Context
from training_imgtool.base.context.entries import Entry, Kind
from training_imgtool.base.errors import FieldError, InputError
from training_imgtool.base.image_limits import find_path_fault
from training_imgtool.base.reference import apply_mirror, parse_reference
from training_imgtool.base.settings import Settings
from training_imgtool.model.entry_point import EntryPoint
from training_imgtool.model.load import SpecFile
from training_imgtool.model.lock import LockedVariant
from training_imgtool.model.recipe import install_step
from training_imgtool.model.recipe.printing import allowed_variables, print_template
from training_imgtool.model.recipe.recipe import BASE_DIGEST, BASE_NAME, REVISION, TITLE, Copy, Lines, Recipe, Template
from training_imgtool.model.spec import APP, INIT, ImageSpec, Role
from training_imgtool.oci.direct.files import OF_THE_ENGINE, list_parents

_SOURCE = re.compile(r"\.|(?!\.{1,2}(?:/|\Z))[\w.@+-]+(?:/(?!\.{1,2}(?:/|\Z))[\w.@+-]+)*")


def make_recipe(
    spec_file: SpecFile,
    role: Role,
    locked: LockedVariant,
    context: Context,
    *,
    exclude: tuple[str, ...],
    settings: Settings,
) -> Recipe:
    """Makes the recipe of one role's image.

    Args:
        spec_file: the spec.
        role: whose image.
        locked: the lock's variant for the role.
        context: the code and `files`; for a template, every file that a COPY can name.
        exclude: the paths below site-packages that the image leaves out.
        settings: the machine's settings, of which SOURCE_DATE_EPOCH and the mirrors count.

    Raises FieldError for a path that is not in the context or not allowed in the image, and TemplateError.
    """
    spec, entry = spec_file.spec, spec_file.entry
    of_role, base = spec.roles[role], parse_reference(locked.variant.base)
    cuda_base = locked.variant.cuda is not None and spec.cuda_from == "base"
    env = {**spec.env, **of_role.env}
    mounted = tuple(name for name, secret in spec.secrets.items() if not secret.index)
    code = tuple(_copy_code(entry, path, context) for path in entry.paths)
    recipe = Recipe(
        platform=spec.platform,
        compression=spec.compression,
        epoch=settings.source_date_epoch,
        base=apply_mirror(base.repository, settings.mirrors).digest(locked.base_digest),
        base_name=str(base),
        locked=locked,
        library_path=install_step.library_path(locked, cuda_base=cuda_base),
        libraries=locked.variant.libraries if cuda_base else (),
        run=Lines(lines=spec.run, env=env, secrets=mounted),
        exclude=exclude,
        run_after_packages=Lines(lines=spec.run_after_packages, env=env, secrets=mounted),
        files=_copy_files(spec, posixpath.relpath(spec_file.folder, entry.top), context, code),
        code=code,
        working_folder=entry.working_folder,
        env=dict(sorted({**_needed_variables(locked, entry), **env}.items())),
        labels=_list_labels(spec, locked, entry, context),
        user=spec.user,
        entrypoint=(*INIT, "/opt/venv/bin/python", *entry.arguments),
    )
    if (template := of_role.template or spec.template) is None:
        return recipe
    if spec.compression != "gzip":
        message = f"{spec.compression} is for the layers that imgtool makes; a builder makes the image of a template"
        raise FieldError(message, field="compression", hint="leave compression out")
    text = print_template(recipe, template, spec_file.folder, allow_secrets=spec.allow_secrets)
    allowed = allowed_variables(spec.allow_secrets)
    return replace(recipe, template=Template(name=template, text=text, context=context.entries, allowed=allowed))


def _needed_variables(locked: LockedVariant, entry: EntryPoint) -> dict[str, str]:
    """Returns the variables without which the program's modules or Keras 3's backend are not found."""
    needed = {"PYTHONPATH": entry.python_path} if entry.python_path else {}
    if (backend := locked.variant.framework.backend) and locked.has_keras_3:
        needed["KERAS_BACKEND"] = backend
    return needed


def _list_labels(spec: ImageSpec, locked: LockedVariant, entry: EntryPoint, context: Context) -> dict[str, str]:
    """Returns the image's labels without the key, which depends on them."""
    labels = {TITLE: spec.name, locked.variant.framework.label: locked.variant.release}
    if revision := context.tree_id(entry.folder if entry.paths == (entry.folder,) else "."):
        labels[REVISION] = revision
    return labels | {BASE_NAME: str(parse_reference(locked.variant.base)), BASE_DIGEST: locked.base_digest}


def _copy_code(entry: EntryPoint, path: str, context: Context) -> Copy:
    """Describes the copy of a folder or a file of the code to the same path below /app."""
    field = "trainer.source" if path == entry.folder else "trainer.include"
    if not _SOURCE.fullmatch(path):
        what = "a folder" if field == "trainer.source" else "a path"
        raise FieldError(f"{path}: expected {what} of letters, digits and ._@+- between slashes", field=field)
    return make_copy(context, path, posixpath.normpath(posixpath.join(APP, path)), field)


def _copy_files(spec: ImageSpec, home: str, context: Context, code: tuple[Copy, ...]) -> tuple[Copy, ...]:
    """Describes the copies for the spec's `files`; raises FieldError for a target that imgtool itself writes."""
    copies: list[Copy] = []
    for name, target in sorted(spec.files.items()):
        field = f"files.{name}"
        source = posixpath.normpath(posixpath.join(home, name))
        if not _SOURCE.fullmatch(source) or name.startswith(("/", "..")):
            message = f"{name!a}: expected a path below the spec's folder, of letters, digits and ._@+-"
            raise FieldError(message, field=field)
        copy = make_copy(context, source, target.rstrip("/"), field)
        if not copy.is_folder and target.endswith("/"):
            copy = replace(copy, target=posixpath.join(target, posixpath.basename(source)))
        for path in (copy.target, *(path for path, _ in copy.list_paths())):
            _check_target(path, field)
        _check_apart(copy, (*copies, *code), field)
        copies.append(copy)
    return tuple(copies)


def _check_target(path: str, field: str) -> None:
    for owned, why in (
        (install_step.VENV, "has the Python packages"),
        *((each, "is the engine's") for each in OF_THE_ENGINE),
    ):
        if path == owned or path.startswith(f"{owned}/"):
            raise FieldError(f"{path}: {owned} {why}", field=field, hint="choose another target")


def _check_apart(copy: Copy, others: tuple[Copy, ...], field: str) -> None:
    """Raises FieldError if two copies write the same path, or if a file replaces a folder of another copy."""
    taken: dict[str, bool] = {}
    for other in others:
        for path in list_parents(other.target):
            taken.setdefault(path, True)
        taken |= {path: entry.kind is Kind.DIRECTORY for path, entry in other.list_paths()}
        if other.is_folder:
            taken[other.target] = True
    own = {path: entry.kind is Kind.DIRECTORY for path, entry in copy.list_paths()}
    own |= dict.fromkeys(list_parents(copy.target), True) | ({copy.target: True} if copy.is_folder else {})
    for path, is_folder in own.items():
        if path in taken and not (is_folder and taken[path]):
            raise FieldError(f"{path} is also the target of the code or of another line of `files`", field=field)


def make_copy(context: Context, path: str, target: str, field: str) -> Copy:
    """Describes the copy of a folder or a file of the context; raises FieldError if the context lacks `path`."""
    try:
        real = context.resolve(path)
    except InputError as error:
        raise FieldError(error.message, field=field, hint=error.hint) from error
    copy = _make_copy(context, path, real, target, field)
    for inner, _ in copy.list_paths():
        if fault := find_path_fault(inner):
            raise FieldError(f"{inner[:80]}: {fault}", field=field, hint="rename it, or choose another target")
    return copy


def _make_copy(context: Context, path: str, real: str, target: str, field: str) -> Copy:
    if path == ".":
        return Copy(source="./", target=target, entries=tuple(entry for entry in context.entries))
    found = context.find(real) if real else None
    if found is None:
        raise FieldError(f"{path}: does not exist, or {IGNORE_FILE} leaves it out", field=field)
    if found.kind is not Kind.DIRECTORY:
        return Copy(source=path, target=target, entries=(replace(found, path=""),))
    return Copy(source=f"{path}/", target=target, entries=_list_below(context, real))


def _list_below(context: Context, folder: str) -> tuple[Entry, ...]:
    prefix = f"{folder}/"
    return tuple(
        replace(entry, path=entry.path.removeprefix(prefix))
        for entry in context.entries
        if entry.path.startswith(prefix)
    )
