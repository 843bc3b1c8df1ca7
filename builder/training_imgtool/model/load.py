"""Finds and reads `image.yaml`, and records the line and column of every key."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from training_imgtool.base.errors import FieldError, FieldListError, InputError, UsageError
from training_imgtool.base.reference import parse_repository
from training_imgtool.base.yamlfile.reader import parse, read_bytes
from training_imgtool.base.yamlfile.tree import Items, Node, Position, Scalar, Table
from training_imgtool.model.decode import Reader, find_position
from training_imgtool.model.entry_point import EntryPoint, find_entry_point
from training_imgtool.model.frameworks import FRAMEWORKS
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target
from training_imgtool.model.value_rules import find_cure, find_nearest, find_word

SPEC_NAME = "image.yaml"
_OTHER_NAME = "imgtool.yaml"
_PROGRAMS = frozenset({".py", ".ipynb", ".sh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """One spec, as read from its file.

    Attributes:
        path: the file.
        folder: the folder from which its relative paths start.
        spec: its content.
        entry: the program that its `trainer` starts.
        text_sha256: the hash of the file's bytes, 64 hexadecimal digits.
        positions: the places of values by key path, such as `roles.worker.gpus.count` or `args[2]`.
        values: values of keys from the command line, which replace those in the file.
        platforms: all platforms in `platform`; `spec` contains only the first one.
        root: the file's tree, without `values`.
        plain: the spec without `values`; None if there are no values, or if the file alone is not a valid spec.
    """

    path: Path
    folder: Path
    spec: ImageSpec
    entry: EntryPoint
    text_sha256: str
    positions: Mapping[str, Position]
    root: Table
    values: Mapping[str, str] = field(default_factory=dict)
    platforms: tuple[str, ...] = ()
    plain: SpecFile | None = None

    def for_platform(self, platform: str) -> SpecFile:
        """Returns the spec with `platform` as its only platform; raises as `load`."""
        return self if self.spec.platform == platform else self.with_values({"platform": platform})

    def with_values(self, values: Mapping[str, str]) -> SpecFile:
        """Returns the spec with further `values` for its keys, but does not read the file again; raises as `load`."""
        plain = self.plain if self.values else self
        return _decode(self.path, self.root, self.text_sha256, {**self.values, **values}, plain)

    def locate(self, field: str) -> str | None:
        """Returns `file:line:column` of a key, or of the nearest parent that is in the file; None for an empty path."""
        if not field:
            return None
        at = find_position(self.positions, field)
        return f"{self.path}:{at.line}:{at.column}"

    def located(self, error: FieldError) -> FieldError:
        """Returns the error with the place of its key; an error that already has a place stays as it is."""
        if error.location or not error.field:
            return error
        located = FieldError(error.message, field=error.field, location=self.locate(error.field), hint=error.hint)
        located.details = error.details
        return located


def load(path: Path, values: Mapping[str, str] | None = None) -> SpecFile:
    """Reads a spec.

    Args:
        path: the file.
        values: values of keys (`tensorflow`, `roles.worker.count`) that replace those of the file.

    Raises:
        FieldListError: values are wrong; it has all errors in the order of the file.
        InputError: imgtool cannot read the file, or it is not YAML.
    """
    data = read_bytes(path)
    root, text_sha256 = parse(data, str(path), what="spec"), hashlib.sha256(data).hexdigest()
    plain = None
    if values:
        with contextlib.suppress(FieldListError):  # the values may supply keys that the file lacks
            plain = _decode(path, root, text_sha256, {}, None)
    return _decode(path, root, text_sha256, values or {}, plain)


def _decode(path: Path, root: Table, text_sha256: str, values: Mapping[str, str], plain: SpecFile | None) -> SpecFile:
    """Converts a file's tree to a spec; `values` replace the file's values of some keys. Raises FieldListError."""
    tree = root
    for key, text in values.items():
        tree = _with_value(tree, key.split("."), text)
    reader = Reader(str(path), path.parent, root=ImageSpec, allowed=_read_allowed(tree))
    spec = reader.read(ImageSpec, tree, "")
    _check_roles(tree, reader)
    if isinstance(spec, ImageSpec):
        _check_together(spec, path.parent, reader)
    if reader.errors:
        raise FieldListError(reader.errors)
    entry = find_entry_point(spec.trainer, path.parent)
    return SpecFile(
        path=path,
        folder=path.parent,
        spec=replace(spec, trainer=entry.trainer, cuda_from=spec.framework.cuda_from or spec.cuda_from),
        entry=entry,
        text_sha256=text_sha256,
        positions=MappingProxyType(reader.positions),
        root=root,
        values=MappingProxyType(dict(values)),
        platforms=reader.several.get("platform", (spec.platform,)),
        plain=plain,
    )


def _with_value(table: Table, keys: list[str], text: str) -> Table:
    """Puts a scalar at the path `keys`. If the file contains that key, too, messages name its place in the file."""
    present = next((value for key, value in table.entries if key.text == keys[0]), None)
    at = present.at if present is not None else table.at
    value: Node = Scalar(at, text, quoted=True)
    if len(keys) > 1:
        value = _with_value(present if isinstance(present, Table) else Table(at, ()), keys[1:], text)
    entries = [(key, value if key.text == keys[0] else old) for key, old in table.entries]
    if present is None:
        entries.append((Scalar(at, keys[0], quoted=False), value))
    return Table(table.at, tuple(entries))


def find(given: Path | None, cwd: Path) -> Path:
    """Returns the path of the spec that a command line names.

    Args:
        given: a file, or a folder to search instead of `cwd`; None without an argument.
        cwd: the folder to search for `image.yaml` or `imgtool.yaml`, else for the only spec in `images/*`.

    Raises:
        InputError: `given` does not exist, or is a folder without a spec.
        UsageError: `given` is None, and `cwd` has no spec or more than one.
    """
    try:
        if given is None:
            return _shorten(_in_folder(cwd, UsageError), cwd)
        path = cwd / given
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # from Python 3.14 on, `is_dir` and `exists` do not raise the cause
        if path.is_dir():
            return _shorten(_in_folder(path, InputError), cwd)
        if path.suffix in _PROGRAMS and path.exists():
            raise InputError(f"{given} is a program, not a spec", hint=f"name the folder of the {SPEC_NAME}")
        if path.exists():
            return _shorten(path, cwd)
        image = own_spec(cwd / "images" / given)
        hint = f"did you mean {_shorten(image.parent, cwd)}?" if image.exists() else _near(path)
    except OSError as error:
        raise InputError(f"{given or cwd}: {(error.strerror or str(error)).lower()}") from error
    usual = "name an image.yaml or its folder; imgtool init FOLDER writes a first one"
    raise InputError(f"{given}: no such file or folder", hint=hint or _explain_word(str(given)) or usual)


def _explain_word(word: str) -> str | None:
    """Returns what to write instead of a SPEC that is no path but a target, a role, a key, a mount or an image."""
    target = word if word in list(Target) else find_word("values", word)
    if target in list(Target):
        return f"--target {target} chooses the job file's format"
    if word in list(Role):
        return f"--role {word} chooses the role"
    if "@sha256:" in word:
        return f"leave it out, or name the {SPEC_NAME}: imgtool finds the images of a spec by their keys"
    if re.match(r"[a-z_.]+=", word):
        return f"--set {word} changes a key of the spec"
    if re.match(r"[^:]+:/.", word):
        return find_cure("options", "run --volume")
    return None


def own_spec(folder: Path) -> Path:
    """Returns the path of a folder's spec, which need not exist; raises UsageError if files of both names exist."""
    spec, other = folder / SPEC_NAME, folder / _OTHER_NAME
    if spec.exists() and other.exists():
        raise UsageError(f"{folder} has {SPEC_NAME} and {_OTHER_NAME}", hint="name one of them, or delete one")
    return other if other.exists() else spec


def _in_folder(folder: Path, missing: type[InputError | UsageError]) -> Path:
    if (spec := own_spec(folder)).exists():
        return spec
    specs = [spec for image in sorted(folder.glob("images/*")) if (spec := own_spec(image)).exists()]
    if not specs:
        others = [name for name in ("image.yml", "imgtool.yml", "image.json") if (folder / name).exists()]
        others += [above] if not others and (above := _find_above(folder)) else []
        hint = f"name the spec: {others[0]}" if others else "imgtool init writes a first one"
        raise missing(f"no {SPEC_NAME} and no images/*/{SPEC_NAME} in {folder}", hint=hint)
    if len(specs) > 1:
        choices = ", ".join(str(spec.parent.relative_to(folder)) for spec in specs)
        raise UsageError(f"{folder} has {len(specs)} specs", hint=f"name one of {choices}")
    return specs[0]


def _find_above(folder: Path) -> str:
    """Returns the nearest parent folder that contains a spec, such as `..`; an empty text if there is none."""
    above = (("/".join([".."] * (depth + 1)), parent) for depth, parent in enumerate(folder.resolve().parents))
    return next((name for name, parent in above if own_spec(parent).exists()), "")


def _shorten(path: Path, cwd: Path) -> Path:
    """Returns `path` relative to `cwd` if that is the process's folder and contains the path; otherwise `path`."""
    return path.relative_to(cwd) if cwd == Path.cwd() and path.is_relative_to(cwd) else path


def _near(path: Path) -> str | None:
    names = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
    close = find_nearest(path.name, sorted(names))
    return f"did you mean {path.parent / close}?" if close else None


def _entry(node: Node | None, key: str) -> Node | None:
    if not isinstance(node, Table):
        return None
    return next((value for name, value in node.entries if name.text == key), None)


def _read_allowed(root: Table) -> frozenset[str]:
    """Reads the key `allow_secrets`, which the reader needs before it reads any other key."""
    node = _entry(root, "allow_secrets")
    return (
        frozenset(item.text for item in node.items if isinstance(item, Scalar))
        if isinstance(node, Items)
        else frozenset()
    )


def _check_roles(root: Table, reader: Reader) -> None:
    """Records an error unless the spec has a master or workers. Without a master, worker 0 is the chief.

    A job with `runtime_version` needs neither, because AI Platform's predefined clusters need no roles in the spec.
    """
    roles = _entry(root, "roles")
    if not isinstance(roles, Table):
        return
    names = {key.text for key, _ in roles.entries} & set(Role)
    predefined = _entry(_entry(root, "job"), "runtime_version")
    if not names & {Role.MASTER, Role.WORKER} and len(names) == len(roles.entries) and predefined is None:
        given = f"found {', '.join(key.text for key, _ in roles.entries)}" if roles.entries else "found no role"
        hint = f"add `master: {{}}`; the roles are {', '.join(Role)}"
        reader.fail("roles", f"expected a master or workers, {given}", hint=hint)
    count = _entry(_entry(roles, Role.MASTER), "count")
    if isinstance(count, Scalar) and not count.null and count.text.isdigit() and count.text != "1":
        reader.fail("roles.master.count", f"expected 1, found {count.text[:20]}", hint="further replicas are workers")


def _check_together(spec: ImageSpec, folder: Path, reader: Reader) -> None:
    """Checks that values fit together, after the reader has checked each value alone."""
    _check_framework(spec, reader)
    try:
        if not reader.failed("trainer"):
            find_entry_point(spec.trainer, folder)
    except FieldError as error:
        reader.fail(error.field, error.message, hint=error.hint)
    if spec.registry is not None:
        try:
            parse_repository(f"{spec.registry}/{spec.name}")
        except InputError as error:
            reader.fail("name", error.message, hint=error.hint)
    for role, of_role in spec.roles.items():
        _check_chips(role, of_role, reader)


def _check_framework(spec: ImageSpec, reader: Reader) -> None:
    """Records an error unless the spec has exactly one framework, and only roles that this framework has."""
    given = [key for key in FRAMEWORKS if getattr(spec, key) or reader.failed(key)]
    if len(given) != 1:
        names = " or ".join(f'`{key}: "{framework.example}"`' for key, framework in FRAMEWORKS.items())
        first = next(iter(FRAMEWORKS))
        message = f"found {' and '.join(given)}" if given else "missing"
        reader.fail(given[-1] if given else first, f"{message}: expected one framework, such as {names}")
        return
    framework = FRAMEWORKS[given[0]]
    for role in spec.roles.keys() - set(framework.roles):
        message = f"{framework.title} has no role {role}: {framework.no_role}"
        reader.fail(f"roles.{role}", message, hint="make them workers")
    several = [f"roles.{role}.processes" for role, of_role in spec.roles.items() if of_role.processes]
    for name in (*several, *(["job.launcher"] if spec.job.launcher else [])) if framework.one_process else ():
        reader.fail(name, f"{framework.title} {framework.one_process}", hint="leave it out")
    if framework.cuda_from and spec.cuda_from != framework.cuda_from and "cuda_from" in reader.positions:
        message = f"{framework.title} takes CUDA from {framework.cuda_from} alone"
        reader.fail("cuda_from", message, hint="leave cuda_from out")
    if spec.cuda and not framework.cuda_from:
        message = f"the release of {framework.title} decides its CUDA"
        reader.fail("cuda", message, hint="leave cuda out; `imgtool compat` says which one it is")
    elif spec.cuda and not re.fullmatch(framework.cuda_form[0], spec.cuda):
        message = f"expected {framework.cuda_form[1]} with {framework.title}, found {spec.cuda!r}"
        reader.fail("cuda", message, hint="leave cuda out for the usual one")


def _check_chips(role: Role, of_role: RoleSpec, reader: Reader) -> None:
    """Checks that a role's `accelerator` fits its `gpus` or `tpu`. A CPU image on paid GPUs would be a mistake."""
    if of_role.gpus and of_role.tpu:
        reader.fail(f"roles.{role}.tpu", "a role has GPUs or a TPU, not both", hint="delete gpus or tpu")
        return
    has, chip = ("gpus", Accelerator.GPU) if of_role.gpus else ("a tpu", Accelerator.TPU)
    if (of_role.gpus or of_role.tpu) and of_role.accelerator not in {None, chip}:
        message = f"expected {chip}, since the role has {has}, found '{of_role.accelerator}'"
        reader.fail(f"roles.{role}.accelerator", message, hint="delete one of the two")
