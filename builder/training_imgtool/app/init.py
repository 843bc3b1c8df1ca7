"""Makes the files of `imgtool init`: a spec for the code in a folder or, without code, a spec and a small trainer."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
import unicodedata
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from imgtool_project_reader.packages import Concessions
from imgtool_project_reader.proposal import Proposal, propose
from imgtool_project_reader.statement import Fact
from training_imgtool.app.init_knowledge import make_knowledge
from training_imgtool.app.init_text import (
    framework_of,
    write_args,
    write_cuda,
    write_framework,
    write_needs,
    write_python,
    write_trainer,
)
from training_imgtool.base.atomic_files import check_writable, write_atomic
from training_imgtool.base.context.own_files import SCHEMA
from training_imgtool.base.errors import InputError, LocalFileError
from training_imgtool.base.progress import Progress, silent
from training_imgtool.base.resources import data_file
from training_imgtool.base.settings import Settings
from training_imgtool.model.frameworks import FRAMEWORKS, Framework
from training_imgtool.model.frameworks.tensorflow import KERAS_2
from training_imgtool.model.json_schema import json_schema
from training_imgtool.model.load import own_spec
from training_imgtool.model.spec import Accelerator, Role
from training_imgtool.model.targets import Target
from training_imgtool.model.value_rules import check_text, quote
from training_imgtool.resolve.frameworks import rules_of
from training_imgtool.resolve.versions.matrix import load_matrix, version_key

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_RELEASE = re.compile(r"(\d+)\.(\d+)\.\d+(?:\.\d+|\.post\d+)?")


@cache
def _read_texts() -> dict[str, Any]:
    """Reads the texts of the files that `init` writes."""
    return tomllib.loads(data_file("starter.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of `init`.

    Attributes:
        files: the texts of the files that a first project needs, by relative path.
        notes: notes for the user.
        proposal: the proposal from which `init` wrote the spec.
        paths: the new files.
        diff: the difference between the existing spec and the proposal; None if there was no spec.
    """

    files: dict[str, str]
    notes: tuple[str, ...]
    proposal: Proposal
    paths: tuple[Path, ...] = ()
    diff: str | None = None


def _make_files(
    folder: Path,
    *,
    name: str | None,
    asked: tuple[str | None, str | None],
    accelerator: Accelerator | None,
    concessions: Concessions | None,
    settings: Settings | None,
    progress: Progress,
) -> Written:
    """Makes the texts of the files for `folder`, but writes no file. See `write_starter` for arguments and errors."""
    key, release = asked
    given = FRAMEWORKS[key or next(iter(FRAMEWORKS))] if release is not None else None
    if given and not _RELEASE.fullmatch(release or ""):
        raise InputError(
            f"expected a full {given.title} release, such as {given.example}, found {quote(release or '')}"
        )
    if name is not None:
        _check_name(name)
    matrix = load_matrix()
    if given and release and not rules_of(given).needs_index(matrix, release):
        matrix.release(release, given)
    knowledge = make_knowledge(matrix, settings, progress)
    ask = partial(propose, folder, knowledge, release=release, accelerator=accelerator, concessions=concessions)
    proposal = ask(framework=given.key if given else None)
    for place, package, index in proposal.list_unbound():
        message = f"{place}: {package} comes from the index {index} alone, which a line of python_packages cannot say"
        raise InputError(message, hint="name the index in tool.uv.sources of a pyproject.toml with a [project] table")
    chosen = name or _usable_name(proposal.name or folder.resolve().name)
    _check_name(chosen)
    is_empty = not proposal.has_code
    if is_empty:
        _check_own_trainer(*framework_of(proposal))
    spec = _write_spec(proposal, chosen, given=(release is not None, accelerator is not None), is_empty=is_empty)
    files = {own_spec(folder).name: spec, **(_trainer(chosen, proposal) if is_empty else proposal.new_files)}
    files[".dockerignore"] = _read_texts()["dockerignore"]
    files[SCHEMA] = f"{json.dumps(json_schema(), separators=(',', ':'))}\n"
    if is_empty and not proposal.needs.requirements:
        own: str = _read_texts()["requirements_of"].get(proposal.choice.framework.key, "")
        files["requirements.txt"] = _read_texts()["requirements"] + own
    notes = tuple(_list_notes(proposal, is_empty=is_empty))
    return Written(files=files, notes=notes, proposal=proposal)


def _write_spec(proposal: Proposal, name: str, *, given: tuple[bool, bool], is_empty: bool) -> str:
    kind, (framework, _) = Accelerator(proposal.accelerator), framework_of(proposal)
    target = framework.tpu_target if kind is Accelerator.TPU else "vertex"
    env = dict(framework.starter_env)
    if "tf-keras" in proposal.needs.packages and version_key(proposal.choice.release) >= (2, 16):
        env[KERAS_2] = "1"
    env |= proposal.list_variables()
    if proposal.placement and proposal.placement.python_path:
        env["PYTHONPATH"] = proposal.placement.python_path
    needs = write_needs(proposal)
    if is_empty and not needs:
        needs = (
            f"requirements: requirements.txt  # resolved together with {framework.title}, and locked in image.lock\n"
        )
    files = dict.fromkeys(
        row.place.partition(":")[0] for row in proposal.table() if row.place.partition(":")[0] in proposal.project.files
    )
    text: str = _read_texts()["spec"]
    return text.format(
        schema=SCHEMA,
        origin=f"# imgtool init read {', '.join(files)}. Check what it proposes.\n" if files else "",
        name=name,
        framework=write_framework(proposal, given=given[0] or is_empty),
        python=write_python(proposal),
        accelerator=kind,
        accelerator_from=f"from {proposal.accelerator_from}"
        if proposal.accelerator_from and not given[1]
        else "cpu, gpu or tpu; a role may have its own",
        needs=(f"cuda_from: {proposal.cuda_from}\n" if proposal.cuda_from else "") + write_cuda(proposal) + needs,
        trainer="trainer: {source: trainer, module: trainer.task}\n" if is_empty else write_trainer(proposal),
        args='args: ["--epochs=5"]\n' if is_empty else write_args(proposal),
        env=f"{{{', '.join(f'{key}: {quote_yaml(value)}' for key, value in env.items())}}}",
        roles=_write_roles(proposal, kind),
        compression=_write_compression(Target(target)),
        target=target,
        others=", ".join(other for other in Target if other != target),
        job_dir=_write_job_dir(proposal),
    )


def _write_compression(target: Target) -> str:
    """Writes the key `compression` if a document says that the target's container runtime reads zstd."""
    if not target.row.runtime.zstd:
        return ""
    return f"compression: zstd  # smaller layers that unpack faster; {target.row.runtime.name} reads them\n"


def quote_yaml(text: str) -> str:
    """Writes a value of a YAML mapping in braces, in quotes so that digits stay text."""
    return text if re.fullmatch(r"/[\w./:-]*", text) else f'"{text}"'


def _write_roles(proposal: Proposal, accelerator: Accelerator) -> str:
    """Writes the roles that the program's tf.distribute strategy needs; without a strategy, only the master."""
    texts: dict[str, str] = _read_texts()["roles"]
    lines = texts[accelerator]
    if Role.PS not in framework_of(proposal)[0].roles:
        said = f"  # {proposal.launcher.place}: {proposal.launcher.value}\n" if proposal.launcher else ""
        each = re.search(r"nproc[-_]per[-_]node[= ](\d+)", said)
        machines: dict[str, str] = _read_texts()["machines"]
        if each and int(each[1]) > 1:  # on GPUs, one process for each is the default
            lines = lines.replace(machines["1"], machines.get(each[1], machines["1"]))
            lines = lines.replace("{machine: n1-standard-4", f"{{machine: n1-standard-4, processes: {each[1]}")
        several = re.search(r"nnodes[= ](?:\d+:)?(\d+)", said)
        if several and int(several[1]) > 1 and accelerator is not Accelerator.TPU:
            return said + lines.replace("count: 1}\n", f"count: {int(several[1]) - 1}}}\n")
        return said + (texts["slice"] if accelerator is Accelerator.TPU else lines.splitlines(keepends=True)[0])
    if accelerator is Accelerator.TPU:
        return lines
    if proposal.program is None or proposal.reached is None:
        return lines.splitlines(keepends=True)[0]
    strategies = {name for source in proposal.reached.sources for name in source.strategies}
    if "ParameterServerStrategy" in strategies:
        return lines + texts["ps"]
    return lines if strategies else lines.splitlines(keepends=True)[0]


def _write_job_dir(proposal: Proposal) -> str:
    """Writes the key `pass_job_dir`, as a comment if the program would refuse the option `--job-dir`."""
    line = "pass_job_dir: true  # appends --job-dir=DIR to the arguments"
    names = {option.name for option in proposal.program.source.options} if proposal.program else {"--job-dir"}
    if "--job-dir" in names:
        return f"{line}; DIR is job_dir, or ./job in imgtool run"
    own = "takes --job_dir: write it into args" if "--job_dir" in names else "must take it"
    return f"# {line}; the program {own}"


def _list_notes(proposal: Proposal, *, is_empty: bool) -> list[str]:
    program, placement = proposal.program, proposal.placement
    if is_empty:
        return []
    if program is None:
        return ["no file trains, as far as imgtool can read: complete `trainer` in image.yaml"]
    if placement is None:
        names = "names of folders may have letters, digits and ._@+-"
        return [f"{program.path} cannot start in its folder: {names}; complete `trainer` in image.yaml"]
    notes = [f"{program.path} became {file}; run init --force once the notebook changes" for file in proposal.new_files]
    unread = [item for listing in proposal.listings[:1] for item in listing.statements if item.fact is Fact.UNREAD]
    notes += [f"{item.place}: {item.value[:80]!r} is no requirement: correct it, or add it by hand" for item in unread]
    places = [item for listing in proposal.listings[:1] for item in listing.statements if item.fact is Fact.OPTION]
    notes += [
        f"{item.place}: python_packages cannot say {item.value}: name the place in pip's configuration"
        for item in places
        if proposal.needs.why_lines
    ]
    old = [item for item in (proposal.reached.sources if proposal.reached else ()) if item.python2_line]
    if old:
        rest = f" and {len(old) - 1} more files" if len(old) > 1 else ""
        notes.append(
            f"{old[0].path}:{old[0].python2_line}{rest}: Python 2, which no image has; 2to3 converts most of it"
        )
    for source in proposal.reached.sources if proposal.reached else ():
        if line := dict(source.used).get("torch.compile"):
            notes.append(
                f"{source.path}:{line}: torch.compile needs a C++ compiler and a folder for its cache: add "
                "system_packages: [g++] and env: {TORCHINDUCTOR_CACHE_DIR: /tmp/inductor}, or turn it off"
            )
            break
    if proposal.needs.unknown:
        notes.append(
            f"no file names the packages of {', '.join(proposal.needs.unknown[:5])}: add them to python_packages"
        )
    return notes


def _trainer(name: str, proposal: Proposal) -> dict[str, str]:
    return {
        "trainer/__init__.py": f'"""The training program of {name}."""\n',
        "trainer/task.py": data_file(f"starter_{framework_of(proposal)[0].key}.py.txt").read_text(encoding="utf-8"),
    }


def _check_name(name: str) -> None:
    check_text(name)
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{quote(name)} is not a valid name for images: expected lower-case letters and digits, "
            "joined by single '.', '_' or '-'",
            hint="give one with --name",
        )


def _check_own_trainer(framework: Framework, of_choice: str) -> None:
    oldest = framework.oldest_starter
    if oldest and version_key(of_choice) < version_key(oldest):
        raise InputError(f"the trainer that init writes needs {framework.title} {oldest} or newer, found {of_choice}")


def write_starter(
    folder: Path,
    *,
    name: str | None = None,
    framework: str | None = None,
    release: str | None = None,
    accelerator: Accelerator | None = None,
    force: bool = False,
    concessions: Concessions | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Written:
    """Writes the files of a first project, but leaves existing files unchanged.

    Args:
        folder: the project's folder; `init` makes it if it is missing.
        name: the images' name; by default the project's name, else a name derived from the folder's.
        framework: the key of the framework of `release`; by default TensorFlow's.
        release: the framework's release; by default the one that the project's files ask for.
        accelerator: the roles' accelerator; by default the one that the project's files ask for.
        force: whether to replace the spec, and the script that `init` made from a notebook.
        concessions: the packages and limits of the project to leave out or change.
        settings: the machine's settings. Its index tells the newest release of a framework without a table.
        progress: is told which file `init` reads, where reading takes seconds.

    Raises:
        InputError: the name or the release is invalid.
        LocalFileError: a file could not be written.
    """
    made = _make_files(
        folder,
        name=name,
        asked=(framework, release),
        accelerator=accelerator,
        concessions=concessions,
        settings=settings,
        progress=progress,
    )
    spec = own_spec(folder)
    order = sorted(
        made.files, key=lambda path: (path in {".dockerignore", SCHEMA}, path == "requirements.txt", path != spec.name)
    )
    if os.path.lexists(spec) and not force:
        return replace(made, diff=_compare(spec, made.files[spec.name]))
    replaced = {
        *(spec.name, SCHEMA),
        *(path for path in order if path.endswith(".py") and force and not path.startswith("trainer/")),
    }
    new = [path for path in order if not os.path.lexists(folder / path) or path in replaced]
    for path in new:
        _make_folder((folder / path).parent)
        check_writable(folder / path)
    for path in new:
        write_atomic(folder / path, made.files[path].encode())
    return replace(made, paths=tuple(folder / path for path in new))


def _compare(spec: Path, text: str) -> str:
    """Returns the difference between the existing spec and the proposed one, in the format of `diff -u`."""
    try:
        lines = spec.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise LocalFileError(f"cannot read {spec}: {error}") from error
    return "".join(difflib.unified_diff(lines, text.splitlines(keepends=True), str(spec), f"{spec} (proposed)"))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalFileError(f"cannot make the folder {folder}: {(error.strerror or str(error)).lower()}") from error


def _usable_name(text: str) -> str:
    """Derives a name for the images from the name of a project or folder: `My Project` becomes my-project."""
    plain = unicodedata.normalize("NFKD", text.casefold()).encode("ascii", "ignore").decode()  # ö becomes o, ß ss
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "trainer"
