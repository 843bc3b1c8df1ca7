"""`imgtool render -o DIR`: writes Dockerfiles and a build context, so that Docker can build the images without imgtool.

    DIR/<role>.Dockerfile   DIR/context/…   DIR/docker-bake.json

`docker build -f DIR/worker.Dockerfile DIR/context` makes the same image; so does `docker buildx bake` in DIR.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.context.context import Context
from training_imgtool.base.context.entries import Entry, Kind, blocks
from training_imgtool.base.context.tar import MTIME
from training_imgtool.base.errors import LocalFileError
from training_imgtool.make.run_wheels import make_build_context
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import Inputs, RoleImage

MARKER = ".imgtool-render"
BAKE_FILE = "docker-bake.json"
CONTEXT = "context"
_OURS = re.compile(rf"[a-z]+\.Dockerfile\Z|{CONTEXT}\Z|{re.escape(BAKE_FILE)}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRole:
    """One role to write, with the text of its Dockerfile and the tags of its image."""

    role: str
    text: str
    tags: tuple[str, ...] = ()


def write_build_folder(output: Path, inputs: Inputs, images: tuple[RoleImage, ...], machine: Machine) -> None:
    """Writes to `output` the Dockerfiles of `images`, a build context with the wheels, and a `docker-bake.json`.

    Raises the errors of `export` and of fetching wheels.
    """
    roles = tuple(
        RenderedRole(role=image.role, text=image.text, tags=(str(image.tag),) if image.tag else ()) for image in images
    )
    variants = {id(image.locked): image.locked for image in images}.values()
    context = make_build_context(inputs, variants, machine)
    export(output, roles, context, inputs.spec.platform)


def docker_bake(roles: Iterable[RenderedRole], platform: str) -> str:
    """Returns the text of docker-bake.json, with one target per role; `docker buildx bake` builds all targets."""
    targets: dict[str, Mapping[str, object]] = {}
    for role in roles:
        # Bake resolves the Dockerfile's path from the context's folder.
        target = {"context": CONTEXT, "dockerfile": f"../{role.role}.Dockerfile", "platforms": [platform]}
        targets[role.role] = {**target, "tags": list(role.tags)} if role.tags else target
    document = {"group": {"default": {"targets": list(targets)}}, "target": targets}
    return json.dumps(document, indent=2) + "\n"


def export(output: Path, roles: tuple[RenderedRole, ...], context: Context, platform: str) -> None:
    """Writes the export into a folder; replaces the files of an earlier export, and keeps all other files.

    Args:
        output: the folder, which this function makes if it is missing.
        roles: the roles to write.
        context: the result of `run_wheels.make_build_context`; wheels become hard links if the file system allows it.
        platform: such as linux/amd64.

    Raises:
        LocalFileError: `output` holds files that are not from an export, or cannot be written.
        InputError: a file changed since it was scanned.
    """
    names = [CONTEXT, BAKE_FILE, *(f"{role.role}.Dockerfile" for role in roles)]
    with _local(output):
        _clear(output, names)
        (output / MARKER).write_text(json.dumps(sorted(names)) + "\n", encoding="utf-8")
        for role in roles:
            (output / f"{role.role}.Dockerfile").write_text(role.text, encoding="utf-8", newline="")
        (output / BAKE_FILE).write_text(docker_bake(roles, platform), encoding="utf-8")
        folder = output / CONTEXT
        folder.mkdir()
        for entry in context.entries:
            _write(folder, entry)


def _clear(output: Path, names: list[str]) -> None:
    """Makes the folder `output`, or removes an earlier export and the files `names` from it; refuses other folders."""
    output.mkdir(parents=True, exist_ok=True)
    present = {path.name for path in output.iterdir()}
    if not present:
        return
    if MARKER not in present:
        raise LocalFileError(
            f"{output} is not empty, and no earlier `imgtool render -o` wrote it", hint="name an empty or new folder"
        )
    try:
        listed = json.loads((output / MARKER).read_text(encoding="utf-8"))
    except ValueError as error:
        raise LocalFileError(f"{output / MARKER} is damaged", hint="name an empty or new folder") from error
    for name in [*(listed if isinstance(listed, list) else []), *names]:
        path = output / str(name)
        if not _OURS.match(str(name)):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _write(folder: Path, entry: Entry) -> None:
    path = folder / entry.path
    if entry.kind is Kind.DIRECTORY:
        path.mkdir()
        path.chmod(entry.mode)
    elif entry.kind is Kind.SYMLINK:
        path.symlink_to(entry.target or "")
    elif not (isinstance(entry.origin, Path) and _try_link(entry.origin, path)):
        with path.open("xb") as file:
            for block in blocks(entry):
                file.write(block)
        path.chmod(entry.mode)
        time = make_mtime(entry)
        os.utime(path, (time, time))


def make_mtime(entry: Entry) -> int:
    """Derives a modification time between 1980 and 1988 from a file's content.

    BuildKit sends a file again only if the file's size or time differs, and does not compare contents. If all files had
    the same time, a change of code that keeps the file's length would not reach the image.
    """
    return MTIME + int((entry.sha256 or "0")[:7], 16)


def _try_link(origin: Path, path: Path) -> bool:
    """Makes a hard link; returns False if the file system refuses it, or if the paths are on two file systems."""
    try:
        path.hardlink_to(origin.resolve())
    except OSError:
        return False
    return True


@contextmanager
def _local(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocalFileError(f"cannot write {error.filename or output}: {error.strerror}") from error
