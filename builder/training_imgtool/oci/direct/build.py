"""Makes the stages that need no engine on top of a parent image, and returns the result as a DirectImage.

Layers come from the files of the recipe, from wheels, from Debian packages, or from records of such layers. Where these
files go may depend on the base's files. In that case, `BaseReader` reads the base.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from training_imgtool.base.errors import NeedsEngineError
from training_imgtool.model.recipe import install_step
from training_imgtool.model.recipe.recipe import IMAGE, KEY_LABEL, PACKAGES, SYSTEM, Copy, Recipe, Stage
from training_imgtool.oci.direct.debian_layer import DebianLayer, OpenedLibraries
from training_imgtool.oci.direct.files import Files
from training_imgtool.oci.direct.layout import FileLayer, lay_out
from training_imgtool.oci.direct.tree import PLAIN, Kind, make_folder
from training_imgtool.oci.image import image, image_config
from training_imgtool.oci.image.image import DirectImage, History, StoredImage
from training_imgtool.oci.image.image_config import Settings
from training_imgtool.oci.layers.context_layers import make_context_layer
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.layers.split import MOST_PARTS, Contents, split
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools, LibraryFiles

ROOT = frozenset({None, "", "0", "root", "0:0", "root:root", "0:root", "root:0"})
_OF_PACKAGES = frozenset({"", "bin", "etc", "lib", "lib64", "sbin", "usr", "var"})
_SHELLS = frozenset({"ash", "bash", "dash", "sh"})
_CHANGES_PYTHON = frozenset(
    {"PYTHONHOME", "PYTHONOPTIMIZE", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONWARNINGS"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentImage:
    """The image to which stages are appended: its manifest and config, the repository of its layers, and its files.

    `library` opens the base's layers; None if imgtool need not look for its standard library.
    """

    stored: StoredImage
    files: Files
    library: LibraryFiles | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a stage: makes layers of files, wheels or Debian packages, or adds only a line of history."""

    text: str
    wheels: bool = False
    files: FileLayer | None = None
    debian: OpenedLibraries | None = None


@dataclass(frozen=True, slots=True)
class PlannedStages:
    """The steps of the planned stages, and the image's run settings after the last step."""

    steps: tuple[Step, ...]
    settings: Settings
    has_wheels: bool


def plan_stages(
    recipe: Recipe, stages: tuple[Stage, ...], parent: ParentImage, debian: DebianLayer | None
) -> PlannedStages:
    """Plans the steps of stages that need no engine, the lowest stage first, on top of a parent image.

    Raises NeedsEngineError if imgtool cannot prove that its result on this image equals an engine's result.
    """
    settings: Settings = image.read_config(parent.stored.config).get("config") or {}
    _check_base(settings, parent.files)
    settings, files, steps = image_config.with_path(settings), parent.files, list[Step]()
    for stage in stages:
        if stage.name == SYSTEM:
            settings = _with_library_path(recipe, settings)
            steps.append(_plan_packages(recipe, settings))
        elif stage.name == PACKAGES:
            settings = _with_library_path(recipe, settings)
            _check_wheels(recipe, settings, files)
            steps.append(Step("imgtool: wheels", wheels=True))
            path = f"{install_step.VENV}/bin:{image_config.read_environment(settings)['PATH']}"
            settings = image_config.with_env(settings, {"PATH": path, "PYTHONUNBUFFERED": "1"})
        elif stage.name == IMAGE:
            planned, files = _plan_files(recipe, settings, files)
            steps += planned
            settings = _finish(recipe, settings, stage.key)
        steps.append(Step(f"imgtool: settings of {stage.name}"))
        files = add_files(recipe, stage, files, debian)
    return PlannedStages(tuple(steps), settings, any(stage.name == PACKAGES for stage in stages))


def add_files(recipe: Recipe, stage: Stage, files: Files, debian: DebianLayer | None) -> Files:
    """Returns the image's files after a stage; only stages of Debian packages and wheels add files here."""
    if stage.name == SYSTEM and debian is not None:
        opened = _name_opened(recipe)
        return files.with_layer(lambda: debian.tree(opened))
    if stage.name == PACKAGES:
        return files.with_copied({install_step.VENV: make_folder()})
    return files


def build_image(
    recipe: Recipe, planned: PlannedStages, tools: LayerTools, debian: DebianLayer | None, *, parent: ParentImage
) -> DirectImage:
    """Executes planned stages on top of an image.

    Args:
        recipe: the image's recipe.
        planned: the result of `plan_stages` for the same recipe and parent image.
        tools: makes layers.
        debian: makes the layer of Debian packages.
        parent: the image that the lowest stage starts from.

    Raises:
        NeedsEngineError: the layers show that only an engine can make this image; nothing was published.
        VerificationError: the base or a wheel does not match its digest.
        InputError: the context changed; LocalFileError: a file cannot be read or written.
    """
    below = len(parent.stored.manifest.layers)
    history = tuple(_make_history(recipe, planned.steps, tools, debian, below))
    return image.assemble(parent.stored.manifest, parent.stored.config, planned.settings, history)


def _check_base(settings: Settings, files: Files) -> None:
    """Raises NeedsEngineError for a base that engines refuse, or that engines change when a container starts."""
    if settings.get("OnBuild"):
        raise NeedsEngineError("the base has ONBUILD instructions", hint=image.WHOLE_IMAGE_HINT)
    image_config.check_environment(settings)
    working = settings.get("WorkingDir") or "/"
    if not working.startswith("/"):
        raise NeedsEngineError(f"{working}, the base's WORKDIR, is not an absolute path")
    if not files.is_folder(posixpath.normpath(working)):
        raise NeedsEngineError(f"the base has no folder {working}, which is its WORKDIR")
    for volume in settings.get("Volumes") or ():
        target = posixpath.join("/", volume)
        if files.node(files.resolve(target)) and not files.is_folder(target):
            raise NeedsEngineError(f"the base declares {volume} as a volume, but it is a file")


def _with_library_path(recipe: Recipe, settings: Settings) -> Settings:
    return image_config.with_env(settings, {"LD_LIBRARY_PATH": recipe.library_path} if recipe.library_path else {})


def _plan_packages(recipe: Recipe, settings: Settings) -> Step:
    if settings.get("User") not in ROOT:
        raise NeedsEngineError(f"Debian packages: the base runs as the user {settings['User']}, not as root")
    _check_surroundings(settings)
    for volume in settings.get("Volumes") or ():
        if posixpath.normpath(volume).split("/")[1] in _OF_PACKAGES:
            raise NeedsEngineError(f"Debian packages: {volume} is a volume of the base, and packages put files there")
    return Step("imgtool: Debian packages", debian=_name_opened(recipe))


def _name_opened(recipe: Recipe) -> OpenedLibraries:
    return OpenedLibraries(recipe.libraries, recipe.library_path if recipe.libraries else "")


def _plan_files(recipe: Recipe, settings: Settings, files: Files) -> tuple[list[Step], Files]:
    """Plans the layer of the spec's `files` and the layer of the code."""
    steps = []
    for text, copies in (("imgtool: files", recipe.files), ("imgtool: code", _with_working_folder(recipe))):
        layer = lay_out(copies, files)
        for path in (item.entry.path for item, _ in layer.contents):
            for volume in settings.get("Volumes") or ():
                if f"/{path}/".startswith(f"{volume.rstrip('/')}/"):
                    raise NeedsEngineError(f"/{path} would be in {volume}, a volume of the base")
        if layer.contents:
            steps.append(Step(text, files=layer))
        files = files.with_copied(layer.nodes)
    return steps, files


def _with_working_folder(recipe: Recipe) -> tuple[Copy, ...]:
    """Returns the copies of the code, and a copy that makes the program's working folder even if it stays empty."""
    return (*recipe.code, Copy(source="./", target=recipe.working_folder, entries=()))


def _finish(recipe: Recipe, settings: Settings, key: str) -> Settings:
    """Returns the image's final run settings."""
    settings = image_config.with_env(
        {**settings, "WorkingDir": recipe.working_folder}, dict(sorted(recipe.env.items()))
    )
    settings = image_config.with_labels(settings, {**recipe.labels, KEY_LABEL: key})
    if recipe.user:
        settings = {**settings, "User": recipe.user}
    return image_config.with_entrypoint(settings, recipe.entrypoint)


def _check_wheels(recipe: Recipe, settings: Settings, files: Files) -> None:
    """Raises NeedsEngineError unless imgtool can install wheels into /opt/venv on this image as an engine would."""
    for volume in settings.get("Volumes") or ():
        inside = f"{posixpath.normpath(volume)}/"
        for path in (install_step.VENV, install_step.WHEELS):
            if inside == "//" or inside.startswith(f"{path}/") or f"{path}/".startswith(inside):
                raise NeedsEngineError(f"wheels: {volume} is a volume of the base, so some engines discard {path}")
    above = posixpath.dirname(install_step.VENV)
    for path in (above, install_step.VENV, install_step.WHEELS):
        if files.resolve(path) != path:
            raise NeedsEngineError(f"wheels: in the base, a part of the path {path} is a link")
    top = files.node(above)
    if top is not None and (top.kind is not Kind.FOLDER or top.attributes != PLAIN):
        raise NeedsEngineError(f"wheels: in the base, {above} is not a folder that root owns with mode 755")
    if files.node(install_step.VENV) is not None:
        raise NeedsEngineError(f"wheels: the base already has {install_step.VENV}")
    wheels = files.node(install_step.WHEELS)
    if wheels is not None and wheels.kind is not Kind.FOLDER:
        raise NeedsEngineError(f"wheels: {install_step.WHEELS} is a file in the base, not a folder")
    _check_surroundings(settings)
    python = recipe.locked.variant.python_executable
    if files.is_listed and files.node(files.resolve(python)) is None:
        raise NeedsEngineError(f"wheels: the base has no {python}")


def _check_surroundings(settings: Mapping[str, Any]) -> None:
    """Raises NeedsEngineError if the image's shell or a variable would change the result of an engine's steps."""
    shell = settings.get("Shell")
    if shell and (shell[0].rpartition("/")[2] not in _SHELLS or shell[-1] != "-c"):
        raise NeedsEngineError(f"the base sets the shell {shell}, which imgtool does not know")
    changed = sorted(_CHANGES_PYTHON & {*image_config.read_environment(settings)})
    if changed:
        raise NeedsEngineError(f"the base sets {changed[0]}, which changes what Python installs or compiles")


def _make_history(
    recipe: Recipe, steps: tuple[Step, ...], tools: LayerTools, debian: DebianLayer | None, below: int
) -> Iterator[History]:
    """Yields the lines of history; leaves out layers that only repeat the highest ones, or are empty.

    A file may be in `files` and in the code. Whether other layers repeat one is checked where the manifest is made.
    """
    copies = sum(step.files is not None for step in steps)
    made: list[str] = []
    for step in steps:
        most = min(MOST_PARTS, (image.MOST_LAYERS - below - len(made)) // max(copies, 1))
        copies -= step.files is not None
        layers = [row for row in _make_layers(recipe, step, tools, debian, most) if row.diff_id != image.EMPTY]
        diff_ids = [layer.diff_id for layer in layers]
        if made[-len(diff_ids) :] == diff_ids or not layers:
            yield History(text=step.text)
            continue
        made += diff_ids
        yield from (History(text=layer.history, layer=layer) for layer in layers)


def _make_layers(
    recipe: Recipe, step: Step, tools: LayerTools, debian: DebianLayer | None, most: int
) -> tuple[LayerSource, ...]:
    if step.files is not None:
        parts = split(step.files.contents, most)
        layers = tuple(_make_file_layer(step.text, part, tools) for part in parts)
    elif step.debian is not None:
        layers = (debian.layer(step.text, step.debian),) if debian is not None else ()
    elif step.wheels:
        return _make_wheel_layers(recipe, tools, debian)
    else:
        return ()
    for layer in layers:
        tools.ready(layer)
    return layers


def _make_wheel_layers(recipe: Recipe, tools: LayerTools, debian: DebianLayer | None) -> tuple[LayerSource, ...]:
    """Makes the layers of the standard library's bytecode and of the wheels, both at once; they send themselves."""
    from training_imgtool.oci.wheel_layers.standard_library import make_library_layer
    from training_imgtool.oci.wheel_layers.wheel_layers import make_packages_layers

    variant, library = recipe.locked.variant, tools.library
    if variant.python_from != "image":
        layer = debian.layer("", _name_opened(recipe)) if debian is not None else None
        library = LibraryFiles(digest=layer.diff_id, layers=lambda: iter((layer.open(),))) if layer else None
    with ThreadPoolExecutor(1, thread_name_prefix="library") as pool:
        made = pool.submit(make_library_layer, variant, library, tools) if library else None
        wheels = make_packages_layers(recipe.locked, recipe.exclude, tools)
        return (*(made.result() if made else ()), *wheels)


def _make_file_layer(text: str, part: Contents, tools: LayerTools) -> LayerSource:
    return make_context_layer(
        part, text, cache=tools.cache, compression=tools.compression, mtime=tools.mtime, once=tools.contexts
    )
