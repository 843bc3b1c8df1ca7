"""Makes the layers of the `packages` stage from the locked wheels, without pip, a container, or unpacked files.

imgtool makes layers of each group's files and a layer of the group's bytecode. The LayerCache keeps the record of these
layers under a key that covers all their inputs, so that the next run or another machine can use the layers without the
wheels. The record also contains the group's claims (`path_conflicts`), so that imgtool can check a changed group for
conflicts without the wheels of other groups.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import chain
from typing import Any

from training_imgtool.base.errors import NeedsEngineError
from training_imgtool.base.interpreters import Interpreter
from training_imgtool.base.wheel_zip import check_hash, open_wheel
from training_imgtool.model.lock import LockedVariant
from training_imgtool.model.recipe import install_step
from training_imgtool.oci.layers import blobs
from training_imgtool.oci.layers.codecs import choose_codec
from training_imgtool.oci.layers.layer_cache import LayerRecord, Record, hash_fields
from training_imgtool.oci.layers.layers import Group, LayerSource, group_wheels, sort_items, split
from training_imgtool.oci.layers.path_conflicts import find_claims, find_overlaps
from training_imgtool.oci.layers.tar_writer import VERSION, Item, write_tar
from training_imgtool.oci.wheel_layers import wheel_items
from training_imgtool.oci.wheel_layers.install import Environment, read_template
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools

ENVIRONMENT = "environment"
BYTECODE = " bytecode"
PART = " part "
_TINY = 1024  # bytes of source, too few for a layer of bytecode
_LAYOUT = 3  # part of every key; change it when imgtool lays out the same wheels in another way


def make_packages_layers(locked: LockedVariant, exclude: tuple[str, ...], tools: LayerTools) -> tuple[LayerSource, ...]:
    """Makes the layers of /opt/venv, lowest first, with what `COPY --from=wheels /opt/venv /opt/venv` would copy.

    Raises:
        NeedsEngineError: only an engine can make the layers; the message says why.
        VerificationError: a wheel is not the locked one, or damaged.
        LocalFileError: a wheel or the cache cannot be read or written.
    """
    return _Making(locked, exclude, tools).layers()


class _Making:
    """The state of one call of `make_packages_layers`."""

    def __init__(self, locked: LockedVariant, exclude: tuple[str, ...], tools: LayerTools) -> None:
        self._locked, self._exclude, self._tools = locked, exclude, tools
        self._groups = group_wheels(locked.wheels)
        self._units: dict[str, Group | None] = {ENVIRONMENT: None, **{group.name: group for group in self._groups}}
        self._files: dict[str, wheel_items.GroupFiles] = {}
        self._codec = choose_codec(tools.compression)
        _check_exclude(exclude)

    def layers(self) -> tuple[LayerSource, ...]:
        return tuple(map(self._make_layer_source, self._make()))

    def _make(self) -> tuple[LayerRecord, ...]:
        """Makes the layers of groups that have no record yet, and checks that no two groups conflict."""
        records = self._find_records()
        units = tuple(unit for name, unit in self._units.items() if name not in records)
        missing = tuple(filter(None, units))
        if missing and self._compiles:
            _ = self._interpreter  # before any download
        self._tools.expect((self._locked.installer, *(wheel for group in missing for wheel in group.wheels)))
        records |= self._make_groups(units)
        self._check_clashes(records)
        # Two groups are equal if `exclude` leaves only their folders.
        layers = {layer.diff_id: layer for name in self._units for layer in records[name].layers}
        return tuple(sorted(layers.values(), key=lambda layer: layer.name.endswith(BYTECODE)))

    def _make_groups(self, units: tuple[Group | None, ...]) -> dict[str, Record]:
        """Makes each group's layers once this machine has the group's wheels, the largest such group first."""
        records: dict[str, Record] = {}
        ready: list[Group | None] = []
        running: dict[Future[Any], str] = {}
        workers = self._tools.workers
        arrivals = ThreadPoolExecutor(len(units) or 1, thread_name_prefix="arrivals")
        coming: dict[Future[Any], Group | None] = {arrivals.submit(self._wait_for, unit): unit for unit in units}
        with ThreadPoolExecutor(workers) as pool, ThreadPoolExecutor(workers) as inner:
            try:
                while coming or ready or running:
                    ready.sort(key=lambda unit: unit.size if unit else 0)
                    while ready and len(running) < workers:
                        unit = ready.pop()
                        running[pool.submit(self._make_group, unit, inner)] = unit.name if unit else ENVIRONMENT
                    for future in wait({*coming, *running}, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        if future in running:
                            records[running.pop(future)] = result
                        else:
                            ready.append(coming.pop(future))
            finally:
                arrivals.shutdown(wait=False)
                inner.shutdown(wait=False, cancel_futures=True)
                pool.shutdown(cancel_futures=True)
        return records

    def _wait_for(self, group: Group | None) -> None:
        """Waits until the group's wheels are on this machine."""
        for wheel in group.wheels if group else ():
            self._tools.wheel_path(wheel)

    def _find_records(self) -> dict[str, Record]:
        """Looks up the records of all groups in parallel."""
        with ThreadPoolExecutor(8) as pool:
            answers = dict(zip(self._units, pool.map(self._find, self._units.values()), strict=True))
        records = {name: record for name, record in answers.items() if record}
        for record in records.values():
            self._announce(record)
        return records

    def _find(self, group: Group | None) -> Record | None:
        return self._tools.cache.find_wheels(self._hash_group(group))

    def _announce(self, record: Record) -> None:
        for layer in record.layers:
            self._tools.ready(self._make_layer_source(layer))

    def _install(self, group: Group) -> wheel_items.GroupFiles:
        return wheel_items.group_files(group.wheels, self._environment, self._exclude, self._tools.wheel_path)

    @functools.cached_property
    def _environment(self) -> Environment:
        pip = open_wheel(self._tools.wheel_path(self._locked.installer), self._locked.installer.sha256)
        check_hash(pip)
        return Environment(prefix=install_step.VENV, python=self._locked.variant.python, script=read_template(pip))

    def _check_clashes(self, records: Mapping[str, Record]) -> None:
        """Compares the files of groups whose claims overlap. The comparison needs the wheels of these groups."""
        claims = {name: record.claims for name, record in records.items() if record.claims is not None}
        doubtful = find_overlaps(claims) if len(claims) == len(records) else {*records}
        files, owners = dict[str, Item](), dict[str, str]()
        for item in wheel_items.make_environment_items(self._locked) if ENVIRONMENT in doubtful else ():
            wheel_items.merge(files, item, owners, "the virtual environment")
        for group in (group for group in self._groups if group.name in doubtful):
            installed = self._install_files(group)
            for item in installed.items:
                wheel_items.merge(files, item, owners, installed.owners.get(item.entry.path, ""))

    def _make_group(self, group: Group | None, inner: Executor) -> Record:
        """Makes a group's layers and stores their record in the cache."""
        layers = []
        for layer in self._group_layers(group, inner):
            if layer:
                layers.append(layer)
                self._tools.ready(self._make_layer_source(layer))  # uploads while imgtool makes the next layer
        items = self._install_files(group).items if group else wheel_items.make_environment_items(self._locked)
        site = install_step.site_packages(self._locked)
        record = Record(tuple(layers), find_claims(items, site))
        self._tools.cache.keep_wheels(self._hash_group(group), record)
        return record

    def _group_layers(self, group: Group | None, inner: Executor) -> Iterator[LayerRecord | None]:
        if group is None:
            yield self._make_files_record(ENVIRONMENT, wheel_items.make_environment_items(self._locked))
            return
        files = self._install_files(group)
        parts = [
            inner.submit(self._make_files_record, f"{group.name}{PART}{number}" if number > 1 else group.name, items)
            for number, items in enumerate(self._split_group(group), 1)
        ]
        for part in parts:
            yield part.result()
        if files.sources and self._compiles and not self._is_tiny(group, files):
            yield self._make_bytecode_record(group.name, files.sources, inner)

    @property
    def _compiles(self) -> bool:
        return "compileall" in install_step.install_commands(self._locked, self._exclude)[-1]

    def _make_files_record(self, name: str, items: Iterable[Item]) -> LayerRecord:
        return blobs.keep(name, self._tools.cache, self._codec, write_tar(items, self._tools.mtime))

    @functools.cached_property
    def _interpreter(self) -> Interpreter:
        return self._tools.require_interpreter(self._locked.variant.python)

    def _make_bytecode_record(self, name: str, sources: tuple[Item, ...], inner: Executor) -> LayerRecord | None:
        items = wheel_items.compile_items(sources, self._interpreter, inner, ahead=self._tools.workers)
        first = next(items, None)
        if first is None:
            return None
        return self._make_files_record(name + BYTECODE, chain((first,), items))

    def _make_layer_source(self, record: LayerRecord) -> LayerSource:
        return LayerSource(
            descriptor=record.blob,
            diff_id=record.diff_id,
            history=f"COPY {install_step.VENV}: {record.name} # imgtool, from wheels",
            open=partial(self._open, record),
            is_bytecode=record.name.endswith(BYTECODE),
        )

    def _open(self, record: LayerRecord) -> Iterator[bytes]:
        """Yields the layer's bytes from the cache. If the cache has lost the layer, makes it again from the wheels."""
        cache = self._tools.cache
        if not cache.has_blob(record.blob):
            self._remake(record, self._units.get(record.name.removesuffix(BYTECODE).partition(PART)[0]))
        return cache.read_blob(record.blob)

    def _split_group(self, group: Group) -> Iterator[list[Item]]:
        """Splits a group's files into layers, and adds tiny bytecode, such as that of NVIDIA's empty modules."""
        files = self._install_files(group)
        items = {item.entry.path: item for item in files.items}
        if self._compiles and self._is_tiny(group, files):
            with ThreadPoolExecutor(1) as pool:
                compiled = wheel_items.compile_items(files.sources, self._interpreter, pool, ahead=1)
                items = {item.entry.path: item for item in compiled} | items
        return split(sort_items(items.values()), install_step.VENV.strip("/"), group.largest_part)

    @staticmethod
    def _is_tiny(group: Group, files: wheel_items.GroupFiles) -> bool:
        return group.is_large and sum(source.entry.size for source in files.sources) <= _TINY

    def _install_files(self, group: Group) -> wheel_items.GroupFiles:
        if group.name not in self._files:
            self._files[group.name] = self._install(group)
        return self._files[group.name]

    def _remake(self, record: LayerRecord, group: Group | None) -> None:
        with ThreadPoolExecutor(self._tools.workers) as inner:
            if group is not None:
                self._install_files(group)
            layers = [layer for layer in self._group_layers(group, inner) if layer and layer.name == record.name]
        if [layer.blob for layer in layers] != [record.blob]:
            self._forget(group)
            raise blobs.remade_error(record.blob, "a compiler or library here differs from the one that made it first")

    def _forget(self, group: Group | None) -> None:
        self._tools.cache.forget(self._hash_group(group))

    def _hash_group(self, group: Group | None) -> str:
        """Hashes what decides a group's layers: the install script's text and inputs, and the release of Python."""
        script = install_step.install_script(self._locked, self._exclude)
        fields: dict[str, Any] = {
            "kind": "group",
            "version": VERSION,
            "script": hashlib.sha256(script.encode()).hexdigest(),
            "pip": self._locked.installer.sha256,
            "python": self._tools.release,
            "wheels": [(wheel.name, wheel.sha256) for wheel in (group.wheels if group else ())],
            "mtime": self._tools.mtime,
            "codec": self._codec.name,
            "layout": _LAYOUT,
        }
        return hash_fields(fields)


def _check_exclude(exclude: tuple[str, ...]) -> None:
    for prefix in exclude:
        parts = prefix.strip("/").split("/")
        if not all(parts) or {".", ".."} & set(parts):
            raise NeedsEngineError(f"exclude: {prefix!r} is not a plain path below site-packages")
