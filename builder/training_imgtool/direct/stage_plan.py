"""Plans how to execute a stage without a container, before any layer is made.

The direct builder executes a stage only when the result is certain to be the one that an engine gives (rule 1 of
docs/architecture.md). For everything else these functions raise NeedsEngineError with the line and the reason.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from training_imgtool.context.context import Context
from training_imgtool.core.errors import InputError, NeedsEngineError
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.direct.copy import FileLayer, plan_copy, plan_folder
from training_imgtool.direct.debian_layer import DebianLayer, OpenedLibraries, is_apt_script
from training_imgtool.direct.files import ASSUMED, Files
from training_imgtool.direct.image import image_config
from training_imgtool.direct.image.image import WHOLE_IMAGE_HINT
from training_imgtool.direct.links import DependsOnBaseError
from training_imgtool.direct.tree import PLAIN, Kind, make_folder
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.evaluate import Expanded, ambiguous_args, evaluate
from training_imgtool.dockerfile.parse import Dockerfile, DockerfileError, Instruction, Stage, parse
from training_imgtool.plan import LockedVariant

ROOT = frozenset({None, "", "0", "root", "0:0", "root:root", "0:root", "root:0"})
_WITH_VARIABLES = frozenset({"ADD", "COPY", "EXPOSE", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"})
_OF_PACKAGES = frozenset({"", "bin", "etc", "lib", "lib64", "sbin", "usr", "var"})
_SHELLS = frozenset({"ash", "bash", "dash", "sh"})
_CHANGES_PYTHON = frozenset(
    {"PYTHONHOME", "PYTHONOPTIMIZE", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONWARNINGS"}
)


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction's effect: a layer of files or of Debian packages, the layers of the wheels, or settings only."""

    text: str
    files: FileLayer | None = None
    wheels: bool = False
    debian: OpenedLibraries | None = None


@dataclass(frozen=True, slots=True)
class State:
    """An image between two instructions.

    Attributes:
        settings: the `config` object of its config.
        files: what is where.
        cmd_set: whether this stage had a CMD.
        assumed: whether the base is assumed to be empty, so that what depends on it is decided later.
    """

    settings: Mapping[str, Any]
    files: Files
    cmd_set: bool = False
    assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInputs:
    """What stages are made from."""

    context: Context
    locked: LockedVariant
    exclude: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()  # that the stage with Debian packages opens
    debian: DebianLayer | None = None  # None while stages are only planned


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSplit:
    """The stages that lead to a wanted one: those of an engine, and above them those of the direct builder.

    Attributes:
        base: the image that the lowest stage starts from, when no stage needs an engine.
        engine_stage: otherwise the last stage that an engine has to build; its image is the parent of the others.
        stages: those above it, lowest first, each made directly; none where the wanted stage itself needs an engine.
        reasons: why the stages below are for an engine, by label.
    """

    base: Digest | None
    engine_stage: Stage | None
    stages: tuple[Stage, ...]
    reasons: Mapping[str, str]

    @property
    def needs_engine(self) -> str:
        """Says why the wanted stage needs an engine; empty when it does not."""
        if self.stages or self.engine_stage is None:
            return ""
        return f"stage {self.engine_stage.label}: {self.reasons[self.engine_stage.label]}"


def split_stages(dockerfile: Dockerfile, target: str, inputs: StageInputs) -> StageSplit:
    """Splits the stages below `target` (itself included) into an engine's and the direct builder's.

    It reads no base: what depends on one is planned again on the base itself, by `build.plan_stages`.
    """
    line = (*dockerfile.below(dockerfile.stage(target)), dockerfile.stage(target))
    base = parse_reference(line[0].base)
    if not isinstance(base, Digest):
        reason = f"FROM {line[0].base}: a base without a digest"
        return StageSplit(base=None, engine_stage=line[-1], stages=(), reasons={target: reason})
    reasons = {}
    empty = State({}, ASSUMED, assumed=True)
    state, first = empty, 0
    for number, stage in enumerate(line):
        try:
            _, state = plan_stage(dockerfile, stage, state, inputs)
        except NeedsEngineError as error:
            reasons[stage.label] = error.message
            state, first = empty, number + 1
        except DockerfileError:
            if not state.assumed:
                raise
            state = empty  # a variable that is not set may be one of the base: `plan_stages` knows
    return StageSplit(
        base=None if first else base,
        engine_stage=line[first - 1] if first else None,
        stages=line[first:],
        reasons=reasons,
    )


def plan_stage(
    dockerfile: Dockerfile, stage: Stage, state: State, inputs: StageInputs
) -> tuple[tuple[Step, ...], State]:
    """Plans the stage's steps and the state after it.

    Raises:
        NeedsEngineError: an instruction needs an engine; the message says which and why.
        DockerfileError: a variable cannot be expanded.
    """
    if state.settings.get("OnBuild"):
        raise NeedsEngineError(
            f"line {stage.line}: FROM {stage.base}: the base has ONBUILD instructions",
            hint=WHOLE_IMAGE_HINT,
        )
    image_config.check_environment(state.settings)
    state = replace(state, settings=image_config.with_path(state.settings), cmd_set=False)  # a CMD counts in its stage
    _check_container(state)
    if unsure := ambiguous_args(dockerfile, stage, image_config.read_environment(state.settings)):
        raise NeedsEngineError(f"stage {stage.label}: {min(unsure)}: only BuildKit finds this ARG")
    steps: list[Step] = []
    for step in evaluate(dockerfile, stage, image_config.read_environment(state.settings)):
        try:
            planned_step, state = _plan_step(dockerfile, stage, step, state, inputs)
        except NeedsEngineError as error:
            has_variable = step.name in _WITH_VARIABLES and "$" in step.instruction.raw
            of_base = isinstance(error, DependsOnBaseError) or has_variable
            if not (state.assumed and of_base):
                raise
        else:
            steps.append(planned_step)
    return tuple(steps), state


def _check_container(state: State) -> None:
    """Raises DependsOnBaseError where some engines fail or make a folder as soon as a container has these settings."""
    if state.assumed:
        return
    working = state.settings.get("WorkingDir") or "/"
    if not working.startswith("/"):
        raise DependsOnBaseError(f"{working}, the base's WORKDIR, is not an absolute path")
    path = image_config.resolve_working_folder(state.settings, "")
    if not state.files.is_folder(path):
        raise DependsOnBaseError(f"the base has no folder {path}, which is its WORKDIR")
    for volume in state.settings.get("Volumes") or ():
        target = posixpath.join("/", volume)
        if state.files.node(state.files.resolve(target)) and not state.files.is_folder(target):
            raise DependsOnBaseError(f"{volume} is a volume, and a file")


def _plan_step(
    dockerfile: Dockerfile, stage: Stage, step: Expanded, state: State, inputs: StageInputs
) -> tuple[Step, State]:
    instruction = step.instruction
    text = f"{instruction.name} {_format_flags(instruction)}{instruction.text}"
    if instruction.name == "COPY" and "from" in step.flags:
        _check_packages(dockerfile, stage, step, state, inputs)
        venv = {install_step.VENV: make_folder()}
        return Step(text, wheels=True), replace(state, files=state.files.with_copied(venv))
    if instruction.name in {"COPY", "ADD"}:
        files = _plan_copy(step, state, inputs)
        return Step(text, files=files), replace(state, files=state.files.with_copied(files.nodes))
    if instruction.name == "RUN" and is_apt_script(instruction, inputs.locked, inputs.libraries):
        return _plan_packages(step, state, inputs)
    settings = image_config.apply(state.settings, step, cmd_set=state.cmd_set)
    state = replace(state, settings=settings, cmd_set=state.cmd_set or instruction.name == "CMD")
    if instruction.name == "VOLUME":
        _check_container(state)
    if instruction.name != "WORKDIR":
        return Step(text), state
    folder_layer = plan_folder(f"line {instruction.line}: WORKDIR", settings["WorkingDir"], state.files)
    if folder_layer is None:
        return Step(text), state
    if settings.get("User") not in ROOT:
        raise DependsOnBaseError(f"line {instruction.line}: WORKDIR makes a folder as {settings['User']}")
    return Step(text, files=folder_layer), replace(state, files=state.files.with_copied(folder_layer.nodes))


def _plan_packages(step: Expanded, state: State, inputs: StageInputs) -> tuple[Step, State]:
    """Plans the stage's Debian packages, when imgtool knows what installing them leaves behind."""
    where = f"line {step.instruction.line}: RUN apt-get install"
    reason = inputs.locked.debian.engine if inputs.locked.debian else ""
    if reason:
        raise NeedsEngineError(f"{where}: {reason}")
    _check_surroundings(where, state.settings)
    for volume in state.settings.get("Volumes") or ():
        if posixpath.normpath(volume).split("/")[1] in _OF_PACKAGES:
            raise NeedsEngineError(f"{where}: {volume} is a volume, where packages have files")
    opened = OpenedLibraries(inputs.libraries, image_config.read_environment(state.settings).get("LD_LIBRARY_PATH", ""))
    text, layer = f"RUN {step.instruction.text}", inputs.debian
    if layer is not None:
        state = replace(state, files=state.files.with_layer(lambda: layer.tree(opened)))
    return Step(text, debian=opened), state


def _plan_copy(step: Expanded, state: State, inputs: StageInputs) -> FileLayer:
    try:
        files = plan_copy(step, inputs.context, state.files, str(state.settings.get("WorkingDir") or "/"))
    except InputError as error:
        raise NeedsEngineError(f"line {step.instruction.line}: {error.message}", hint=error.hint) from error
    for volume in state.settings.get("Volumes") or ():
        if any(f"{path}/".startswith(f"{volume.rstrip('/')}/") for path in files.placed):
            raise NeedsEngineError(f"line {step.instruction.line}: {volume} is a volume already")
    return files


def _format_flags(instruction: Instruction) -> str:
    return "".join(f"--{name}{'' if value is None else f'={value}'} " for name, value in instruction.flags)


def _check_packages(dockerfile: Dockerfile, stage: Stage, step: Expanded, state: State, inputs: StageInputs) -> None:
    """Raises NeedsEngineError unless this copies the environment that exactly imgtool's script makes."""
    instruction = step.instruction
    where = f"line {instruction.line}: COPY --from={step.flags['from']}"
    source = dockerfile.earlier(step.flags["from"], stage)
    if source is None or set(step.flags) != {"from"} or step.words != (install_step.VENV, install_step.VENV):
        raise NeedsEngineError(f"{where}: only {install_step.VENV} of the wheels stage can be copied directly")
    if dockerfile.earlier(source.base, source) is not dockerfile.earlier(stage.base, stage) or (
        dockerfile.earlier(source.base, source) is None and source.base != stage.base
    ):
        raise NeedsEngineError(f"{where}: it starts from another image than this stage")
    if [(instruction.name, instruction.text) for instruction in source.instructions] != _list_wheels_steps(inputs):
        raise NeedsEngineError(f"{where}: the stage is not exactly what imgtool's packages step renders")
    _check_places(where, state)
    _check_surroundings(where, state.settings)
    python = inputs.locked.variant.python_executable
    if state.files.is_listed and state.files.node(state.files.resolve(python)) is None:
        raise DependsOnBaseError(f"{where}: the base has no {python}")


def _check_places(where: str, state: State) -> None:
    """Raises NeedsEngineError unless the script finds room for /opt/venv and /wheels, and leaves both in the image."""
    for volume in state.settings.get("Volumes") or ():
        inside = f"{posixpath.normpath(volume)}/"
        for path in (install_step.VENV, install_step.WHEELS):
            if inside == "//" or inside.startswith(f"{path}/") or f"{path}/".startswith(inside):
                raise NeedsEngineError(f"{where}: {volume} is a volume, so that {path} does not stay in every engine")
    above = posixpath.dirname(install_step.VENV)
    for path in (above, install_step.VENV, install_step.WHEELS):
        if state.files.resolve(path) != path:
            raise DependsOnBaseError(f"{where}: {path} leads through a link of the base")
    top = state.files.node(above)
    if top is None or top.attributes != PLAIN:
        raise DependsOnBaseError(f"{where}: {above} is not a folder of root with mode 755 in the base")
    if state.files.node(install_step.VENV) is not None:
        raise DependsOnBaseError(f"{where}: {install_step.VENV} is there already")
    wheels = state.files.node(install_step.WHEELS)
    if wheels is not None and wheels.kind is not Kind.FOLDER:
        raise DependsOnBaseError(f"{where}: {install_step.WHEELS} is a file in the base")


def _check_surroundings(where: str, settings: Mapping[str, Any]) -> None:
    """Raises NeedsEngineError when the script would do something else on this image."""
    if settings.get("User") not in ROOT:
        raise NeedsEngineError(f"{where}: the image below runs as {settings['User']}")
    shell = settings.get("Shell")
    if shell and (shell[0].rpartition("/")[2] not in _SHELLS or shell[-1] != "-c"):
        raise NeedsEngineError(f"{where}: the image below has the shell {shell}")
    changed = sorted(_CHANGES_PYTHON & {*image_config.read_environment(settings)})
    if changed:
        raise NeedsEngineError(f"{where}: {changed[0]} in the image below changes what Python installs or compiles")


def _list_wheels_steps(inputs: StageInputs) -> list[tuple[str, str]]:
    script = install_step.install_script(inputs.locked, inputs.exclude)
    text = f"FROM scratch\nCOPY {install_step.context_folder(inputs.locked)}/ {install_step.WHEELS}/\nRUN {script}\n"
    return [(instruction.name, instruction.text) for instruction in parse(text).stages[0].instructions]
