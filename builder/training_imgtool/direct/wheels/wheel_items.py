"""The files of a group of wheels, and of the bare environment, as tar items: what the install script leaves behind.

Contents follow `dockerfile.install_step.install_script`: the environment laid out by hand, pip's files, the
excluded folders gone, then bytecode for every source below site-packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.core.interpreters import Interpreter
from training_imgtool.direct.layers.layers import folder_item, folders_of, in_order
from training_imgtool.direct.layers.splice import Item
from training_imgtool.direct.layers.tarhead import Entry, Kind
from training_imgtool.direct.layers.wheel_zip import WheelFile, check_hash, content, open_wheel, opened, read, stream
from training_imgtool.direct.wheels.bytecode import compiled
from training_imgtool.direct.wheels.install import Environment, Installed, install
from training_imgtool.dockerfile import install_step
from training_imgtool.plan import LockedVariant, Wheel

_DEEPEST = 10  # folders that compileall enters before Python 3.9


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFiles:
    """A group's items in a layer's order, and its sources for bytecode."""

    items: tuple[Item, ...]
    sources: tuple[Item, ...]


def environment_items(locked: LockedVariant) -> list[Item]:
    """The environment without packages; raises NeedsEngineError when the shell would read its text in another way."""
    python, config = locked.variant.python, install_step.pyvenv_cfg(locked)
    if any(
        character in config + locked.variant.python_executable for character in "'\"%\\$`*?[ \t" if character != " "
    ):
        raise NeedsEngineError(
            f"the interpreter's path {locked.variant.python_executable!r} has characters of the shell"
        )
    top, site = install_step.VENV.strip("/"), install_step.site_packages(locked).strip("/")
    links = {"python": locked.variant.python_executable, "python3": "python", f"python{python}": "python"}
    files = [
        Item(Entry(path=f"{top}/bin/{name}", kind=Kind.LINK, mode=0o777, target=target))
        for name, target in links.items()
    ]
    text = config.encode()
    files.append(Item(Entry(path=f"{top}/pyvenv.cfg", kind=Kind.FILE, mode=0o644, size=len(text)), data=text))
    paths = [*(file.entry.path for file in files), f"{site}/x"]
    return in_order([*files, *map(folder_item, folders_of(paths, top))])


def group_files(
    wheels: Iterable[Wheel],
    environment: Environment,
    exclude: tuple[str, ...],
    wheel_path: Callable[[Wheel], Path],
) -> GroupFiles:
    """Installs wheels that share a layer.

    Raises:
        NeedsEngineError: two wheels have different files of one name, or pip's result cannot be told.
        VerificationError: a wheel is not the locked one, or damaged.
        LocalFileError: a wheel cannot be read.
    """
    found: dict[str, Item] = {}
    for wheel in wheels:
        file = open_wheel(wheel_path(wheel), wheel.sha256)
        check_hash(file)
        for installed in install(file, wheel.name, environment):
            item = _item(installed, file)
            merge(found, item)
    gone = tuple(f"{environment.site}/{prefix.strip('/')}".strip("/") for prefix in exclude)
    folders = [path for path in folders_of(found, environment.top) if not _below(path, gone)]
    kept = [item for path, item in found.items() if not _below(path, gone)]
    return GroupFiles(
        items=tuple(in_order([*kept, *map(folder_item, folders)])),
        sources=tuple(in_order(item for item in kept if _is_source(item.entry.path, environment))),
    )


def merge(found: dict[str, Item], item: Item) -> None:
    """Adds `item`; raises NeedsEngineError when its path holds something else already.

    Which of two wheels wins depends on the order pip chooses, which changed between its releases.
    """
    path = item.entry.path
    other = found.setdefault(path, item)
    if other is not item and (other.entry != item.entry or _data(other) != _data(item)):
        raise NeedsEngineError(f"/{path} is in two wheels, with different content: pip decides which one stays")


def _data(item: Item) -> bytes:
    return read(item.wheel, item.member) if item.wheel and item.member else item.data


def _item(installed: Installed, wheel: WheelFile) -> Item:
    path = installed.path.strip("/")
    entry = Entry(path=path, kind=Kind.FILE, mode=installed.mode, size=installed.size)
    if installed.member is None:
        return Item(entry, data=installed.data)
    return Item(entry, wheel=wheel, member=installed.member)


def _below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _is_source(path: str, environment: Environment) -> bool:
    site = environment.site.strip("/") + "/"
    if not path.endswith(".py") or not path.startswith(site):
        return False
    folders = path.removeprefix(site).split("/")[:-1]
    old = tuple(int(part) for part in environment.python.split(".")) < (3, 9)
    return not {"__pycache__", install_step.UNCOMPILED} & set(folders) and not (old and len(folders) > _DEEPEST)


def bytecode_items(
    sources: tuple[Item, ...], interpreter: Interpreter, pool: Executor, *, ahead: int
) -> Iterator[Item]:
    """The compiled sources and the folders they lie in, each folder once, before what is in it."""
    seen: set[str] = set()
    named = ((f"/{path}", data) for path, data in _contents(sources))
    size = sum(source.entry.size for source in sources)
    for path, data in compiled(interpreter, named, pool, size=size, ahead=ahead):
        target = interpreter.cached(path).strip("/")
        for folder in folders_of((target,), install_step.VENV.strip("/")):
            if folder not in seen:
                seen.add(folder)
                yield folder_item(folder)
        yield Item(Entry(path=target, kind=Kind.FILE, mode=0o644, size=len(data)), data=data)


def _contents(items: tuple[Item, ...]) -> Iterator[tuple[str, bytes]]:
    """Paths and contents, each wheel opened once per run of its files."""
    at = 0
    while at < len(items):
        wheel = items[at].wheel
        if wheel is None:
            yield items[at].entry.path, items[at].data
            at += 1
            continue
        with opened(wheel) as descriptor:
            while at < len(items) and (member := items[at].member) and items[at].wheel is wheel:
                data = b"".join(content(wheel, member, stream(descriptor, wheel, member)))
                yield items[at].entry.path, data
                at += 1
