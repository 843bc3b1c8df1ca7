"""Makes tar items for the files of a group of wheels and of the bare environment, as the install script makes them.

The contents follow `model.recipe.install_step.install_script`: the environment laid out by hand, pip's files without
the excluded folders, then bytecode for every source below site-packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.errors import NeedsEngineError, VerificationError
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
from training_imgtool.model.plan import LockedVariant, Wheel
from training_imgtool.model.recipe import install_step
from training_imgtool.oci.layers.layers import list_folders, make_folder_item, sort_items
from training_imgtool.oci.layers.path_conflicts import hash_item
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind
from training_imgtool.oci.wheel_layers.bytecode import compile_sources
from training_imgtool.oci.wheel_layers.install import Environment, Installed, install

_LONGEST_NAME, _LONGEST_PATH = 255, 4096  # bytes: NAME_MAX and PATH_MAX of Linux
_DEEPEST = 10  # folders that compileall enters before Python 3.9


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFiles:
    """A group's items in a layer's order, and its sources to compile."""

    items: tuple[Item, ...]
    sources: tuple[Item, ...]


def make_environment_items(locked: LockedVariant) -> list[Item]:
    """Makes the environment without packages."""
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
    """Installs wheels that share a layer.

    Raises:
        NeedsEngineError: two wheels have different files of one name, or imgtool cannot predict the result of pip.
        VerificationError: a wheel is not the locked one, is damaged, or has paths that pip refuses.
        LocalFileError: a wheel cannot be read.
    """
    files: dict[str, Item] = {}
    for wheel in wheels:
        file = open_wheel(wheel_path(wheel), wheel.sha256)
        check_hash(file)
        for installed in install(file, wheel.name, environment):
            item = _make_item(installed, file)
            merge(files, item)
    folders = list_folders(files, environment.top)
    _check_paths(files, folders)
    gone = tuple(f"{environment.site}/{prefix.strip('/')}".strip("/") for prefix in exclude)
    left = [item for path, item in files.items() if not _is_below(path, gone)]
    return GroupFiles(
        items=tuple(sort_items([*left, *(make_folder_item(path) for path in folders if not _is_below(path, gone))])),
        sources=tuple(sort_items(item for item in left if _is_source(item.entry.path, environment))),
    )


def _check_paths(files: Mapping[str, Item], folders: Iterable[str]) -> None:
    """Refuses paths that pip refuses: those that are both a file and a folder, and names that Linux does not allow."""
    for folder in folders:
        if folder in files:
            raise _conflict_error(folder)
    for path in files:
        if len(path.encode("utf-8", "surrogateescape")) >= _LONGEST_PATH or any(
            len(name.encode("utf-8", "surrogateescape")) > _LONGEST_NAME for name in path.split("/")
        ):
            raise VerificationError(f"/{path[:80]}… in a wheel: longer than file systems take; pip refuses it too")


def merge(files: dict[str, Item], item: Item) -> None:
    """Adds `item` to `files`.

    If two wheels have the same path, pip's order decides, and that order changed between releases of pip.

    Raises:
        NeedsEngineError: `files` has another content for the path.
        VerificationError: one of the two entries for the path is a folder, the other is not.
    """
    path = item.entry.path
    other = files.setdefault(path, item)
    if other is item:
        return
    if (other.entry.kind is Kind.FOLDER) is not (item.entry.kind is Kind.FOLDER):
        raise _conflict_error(path)
    if other.entry != item.entry or hash_item(other) != hash_item(item):
        raise NeedsEngineError(f"/{path} is in two wheels, with different content: pip decides which one stays")


def _conflict_error(path: str) -> VerificationError:
    return VerificationError(
        f"/{path} is a file in one place of the wheels and a folder in another; pip refuses it too",
        hint="leave out one of the packages, or choose another version of it",
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
    """Yields the compiled sources and their folders, each folder once, before its contents."""
    large = next((source.entry for source in sources if source.entry.size > MOST_READ), None)
    if large:
        raise NeedsEngineError(f"/{large.path} has {large.size} bytes of source to compile")
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
