"""Makes tar items for the files that the install script installs: a group of wheels, or the empty environment.

The items match the result of `model.recipe.install_step.install_script`, which makes the virtual environment with shell
commands, runs pip, removes the excluded folders, and compiles every source below site-packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.errors import InputError, NeedsEngineError, VerificationError
from training_imgtool.base.image_limits import find_path_fault
from training_imgtool.base.interpreters import Interpreter
from training_imgtool.base.wheel_zip import (
    MOST_READ,
    WheelFile,
    check_hash,
    open_descriptor,
    open_wheel,
    read_content,
    stream,
)
from training_imgtool.model.lock import LockedVariant, Wheel
from training_imgtool.model.recipe import install_step
from training_imgtool.oci.layers.layers import list_folders, make_folder_item, sort_items
from training_imgtool.oci.layers.path_conflicts import hash_item
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind
from training_imgtool.oci.wheel_layers.bytecode import compile_sources
from training_imgtool.oci.wheel_layers.install import Environment, Installed, install

_DEEPEST = 10  # folders that compileall enters before Python 3.9


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFiles:
    """The items of a group of wheels, in the order of a layer, the sources among them, and each path's package."""

    items: tuple[Item, ...]
    sources: tuple[Item, ...]
    owners: Mapping[str, str]


def make_environment_items(locked: LockedVariant) -> list[Item]:
    """Makes the items of the virtual environment without packages."""
    python, config = locked.variant.python, install_step.pyvenv_cfg(locked)
    top, site = install_step.VENV.strip("/"), install_step.site_packages(locked).strip("/")
    links = {"python": locked.variant.python_executable, "python3": "python", f"python{python}": "python"}
    files = [
        Item(Entry(path=f"{top}/bin/{name}", kind=Kind.LINK, mode=0o777, target=target))
        for name, target in links.items()
    ]
    text = config.encode()
    files.append(Item(Entry(path=f"{top}/pyvenv.cfg", kind=Kind.FILE, mode=0o644, size=len(text)), data=text))
    paths = [*(file.entry.path for file in files), f"{site}/x"]
    return sort_items([*files, *map(make_folder_item, list_folders(paths, top))])


def group_files(
    wheels: Iterable[Wheel],
    environment: Environment,
    exclude: tuple[str, ...],
    wheel_path: Callable[[Wheel], Path],
) -> GroupFiles:
    """Lists the files that the wheels of one group install.

    Raises:
        NeedsEngineError: two wheels have different files at the same path, or imgtool cannot predict the result of pip.
        VerificationError: a wheel is not the locked one, is damaged, or has paths that pip refuses.
        LocalFileError: a wheel cannot be read.
    """
    files, owners = dict[str, Item](), dict[str, str]()
    for wheel in wheels:
        file = open_wheel(wheel_path(wheel), wheel.sha256)
        check_hash(file)
        for installed in install(file, wheel.name, environment):
            item = _make_item(installed, file)
            merge(files, item, owners, wheel.name)
    folders = list_folders(files, environment.top)
    _check_paths(files, folders)
    gone = tuple(f"{environment.site}/{prefix.strip('/')}".strip("/") for prefix in exclude)
    left = [item for path, item in files.items() if not _is_below(path, gone)]
    return GroupFiles(
        items=tuple(sort_items([*left, *(make_folder_item(path) for path in folders if not _is_below(path, gone))])),
        sources=tuple(sort_items(item for item in left if _is_source(item.entry.path, environment))),
        owners=owners,
    )


def _check_paths(files: Mapping[str, Item], folders: Iterable[str]) -> None:
    """Refuses what pip refuses: a path that is both a file and a folder, and a path that is too long for Linux."""
    for folder in folders:
        if folder in files:
            raise _conflict_error(folder)
    for path in files:
        if fault := find_path_fault(path):
            raise InputError(f"a wheel has the path /{path[:80]}…: {fault}", hint="use another version of the package")


def merge(files: dict[str, Item], item: Item, owners: dict[str, str], owner: str) -> None:
    """Adds `item` to `files`, and its package to `owners`, by path.

    If two wheels have the same path, the file that pip installs last stays, and pip's order changed between releases.

    Raises:
        NeedsEngineError: `files` has an item with another content or mode at the path.
        VerificationError: one of the two entries for the path is a folder, the other is not.
    """
    path = item.entry.path
    other, before = files.setdefault(path, item), owners.setdefault(path, owner)
    if other is item:
        return
    if (other.entry.kind is Kind.FOLDER) is not (item.entry.kind is Kind.FOLDER):
        raise _conflict_error(path)
    if other.entry != item.entry or hash_item(other) != hash_item(item):
        message = f"{before} and {owner} have /{path} with different content, and only pip decides which file stays"
        raise NeedsEngineError(f"{message}: leave out one of them, or use an engine")


def _conflict_error(path: str) -> VerificationError:
    return VerificationError(
        f"the wheels have /{path} both as a file and as a folder; pip refuses this, too",
        hint="remove one of the packages, or choose another version of one",
    )


def _make_item(installed: Installed, wheel: WheelFile) -> Item:
    path = installed.path.strip("/")
    entry = Entry(path=path, kind=Kind.FILE, mode=installed.mode, size=installed.size)
    if installed.member is None:
        return Item(entry, data=installed.data)
    return Item(entry, wheel=wheel, member=installed.member)


def _is_below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _is_source(path: str, environment: Environment) -> bool:
    site = environment.site.strip("/") + "/"
    if not path.endswith(".py") or not path.startswith(site):
        return False
    folders = path.removeprefix(site).split("/")[:-1]
    old = tuple(int(part) for part in environment.python.split(".")) < (3, 9)
    return not {"__pycache__", install_step.UNCOMPILED} & set(folders) and not (old and len(folders) > _DEEPEST)


def compile_items(sources: tuple[Item, ...], interpreter: Interpreter, pool: Executor, *, ahead: int) -> Iterator[Item]:
    """Yields the bytecode files and their folders; yields each folder once, before the folder's contents."""
    large = next((source.entry for source in sources if source.entry.size > MOST_READ), None)
    if large:
        raise NeedsEngineError(f"/{large.path} has {large.size} bytes of source, too many for imgtool to compile")
    seen: set[str] = set()
    sources_by_path = ((f"/{path}", data) for path, data in _read_contents(sources))
    size = sum(source.entry.size for source in sources)
    for path, data in compile_sources(interpreter, sources_by_path, pool, size=size, ahead=ahead):
        target = interpreter.cached(path).strip("/")
        for folder in list_folders((target,), install_step.VENV.strip("/")):
            if folder not in seen:
                seen.add(folder)
                yield make_folder_item(folder)
        yield Item(Entry(path=target, kind=Kind.FILE, mode=0o644, size=len(data)), data=data)


def _read_contents(items: tuple[Item, ...]) -> Iterator[tuple[str, bytes]]:
    """Yields paths and contents; opens a wheel once for consecutive files of that wheel."""
    at = 0
    while at < len(items):
        wheel = items[at].wheel
        if wheel is None:
            yield items[at].entry.path, items[at].data
            at += 1
            continue
        with open_descriptor(wheel) as descriptor:
            while at < len(items) and (member := items[at].member) and items[at].wheel is wheel:
                data = b"".join(read_content(wheel, member, stream(descriptor, wheel, member)))
                yield items[at].entry.path, data
                at += 1
