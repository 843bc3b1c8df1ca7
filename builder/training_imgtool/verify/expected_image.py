"""What an image must have above its base: a function of the lock, the code and the base's digest.

This machine makes the layers again, from its records, its wheels or the index, and reads them like those of the image;
a layer of the same digest needs no byte of the registry. Where only an engine can make the image, the locked wheels
still say what is in /opt/venv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.core.interpreters import NoInterpreterError
from training_imgtool.core.progress import Step
from training_imgtool.direct.layers.codecs import Compression
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.layers.layers import MTIME, LayerSource
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.direct.wheels.wheel_layers import make_packages_layers
from training_imgtool.pipeline.direct_builder import DirectBuilder
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.parents import BaseParents
from training_imgtool.pipeline.request import BuildOptions, BuildRun
from training_imgtool.pipeline.role_stages import plan_role
from training_imgtool.pipeline.run_wheels import open_wheel_store
from training_imgtool.verify.facts import Expected, Tree, read_env
from training_imgtool.verify.inspect_registry import LayerReader, Stored
from training_imgtool.verify.layers import overlay
from training_imgtool.wheels.interpreters import find_interpreter
from training_imgtool.wheels.prefetch import WheelPrefetcher

if TYPE_CHECKING:
    from training_imgtool.core.settings import Settings

_Read = Callable[[Iterable[LayerSource]], Tree]


def expect(
    inputs: Inputs,
    image: RoleImage,
    base: Mapping[str, Any],
    *,
    reader: LayerReader,
    stored: Stored | None,
    settings: Settings,
) -> Expected:
    """Makes a role's layers again and lists what they hold.

    Args:
        inputs: what the images are made from.
        image: the role's image.
        base: the config of the locked base.
        reader: reads the layers, and keeps their listings.
        stored: the image in a registry, if there; its copy of an equal layer may be read instead.
        settings: of the machine.

    Raises NeedsEngineError if only an engine can make /opt/venv, and what fetching wheels and the base raises.
    """
    reader.progress(Step(image.role, "working out what the image must have"))
    read = partial(_read_tree, reader, stored, str(image.role))
    try:
        return _expect_whole(inputs, image, reader, settings, read=read)
    except NeedsEngineError as error:
        why = error.message
    release = read_env(base.get("config") or {}).get("PYTHON_VERSION", "")
    try:
        return _expect(_expect_packages(inputs, image, release, settings, read=read), whole=False, why=why)
    except NoInterpreterError as error:
        tree = _expect_packages(inputs, image, release, settings, read=read, compiles=False)
        return _expect(tree, whole=False, compiled=False, why=error.message)


def _expect(tree: Tree, *, whole: bool, compiled: bool = True, why: str = "") -> Expected:
    return Expected(nodes=tree.nodes, removed=frozenset(tree.removed), whole=whole, compiled=compiled, why=why)


def _expect_whole(
    inputs: Inputs, image: RoleImage, reader: LayerReader, settings: Settings, *, read: _Read
) -> Expected:
    run = BuildRun(inputs=inputs, options=BuildOptions(), settings=settings, progress=reader.progress)
    builder = DirectBuilder(run)
    appending = BaseParents(run, reader.registries, builder).of(plan_role(inputs, image))
    append = partial(builder.append, appending, str(image.role))
    try:
        with append() as made:
            return _expect(read(made.layers), whole=True)
    except NoInterpreterError as error:
        with append(compiles=False) as made:
            return _expect(read(made.layers), whole=True, compiled=False, why=error.message)


def _expect_packages(
    inputs: Inputs, image: RoleImage, release: str, settings: Settings, *, read: _Read, compiles: bool = True
) -> Tree:
    """Lists /opt/venv as the locked wheels make it."""
    locked = image.plan.locked
    wheels = WheelPrefetcher(partial(open_wheel_store, inputs, settings), lambda _event: None)
    tools = LayerTools(
        cache=LayerCache(settings.cache / "layers"),
        wheel_path=wheels.path,
        find_interpreter=lambda python: find_interpreter(python, settings.environ, release or None),
        release=release or None,
        compression=Compression(inputs.plan.compression),
        mtime=settings.source_date_epoch or MTIME,
        expect=wheels.expect,
        compiles=compiles,
    )
    try:
        return read(make_packages_layers(locked, image.plan.exclude, tools))
    finally:
        wheels.close()


def _read_tree(reader: LayerReader, stored: Stored | None, subject: str, layers: Iterable[LayerSource]) -> Tree:
    listings = [reader.read_source(layer, stored, subject=subject) for layer in layers]
    return overlay(dict(enumerate(listings)), len(listings))
