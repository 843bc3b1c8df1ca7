"""What only BuildKit executes: `RUN --mount`, heredocs, `# syntax=`; and what such a stage reads.

The rules of `--mount` are those of BuildKit's `frontend/dockerfile/instructions/commands_runmount.go`.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import dropwhile

from training_imgtool.dockerfile.parse import Dockerfile, Instruction, Stage

_PLAIN_FLAGS = frozenset({"chown", "from"})  # of COPY and ADD, which every engine takes
_LINK = "link"  # which changes how BuildKit makes a layer, and not what is in it
_PLATFORM_ARGS = frozenset(
    f"{side}{part}" for side in ("BUILD", "TARGET") for part in ("ARCH", "OS", "PLATFORM", "VARIANT")
)  # Dockerfile reference, "Automatic platform ARGs in the global scope"
_OUTSIDE = frozenset({"cache", "secret", "ssh", "tmpfs"})  # types that read nothing from the context


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One `--mount` of a RUN.

    Attributes:
        kind: `bind`, `cache`, `secret`, `ssh`, `tmpfs`.
        image: the stage or image that `from=` names; None without one.
        source: the path in the context or in the image; `.` by default.
        id: of a secret; `source` names it too.
        optional: whether a secret may be missing: `required=false`.
        text: the flag's value as the Dockerfile has it.
    """

    kind: str
    image: str | None
    source: str
    id: str
    optional: bool
    text: str

    @property
    def reads_context(self) -> bool:
        """Whether the mount shows files of the build context."""
        return self.image is None and self.kind not in _OUTSIDE


def list_mounts(instruction: Instruction) -> tuple[Mount, ...]:
    """Lists the mounts of an instruction, in order."""
    return tuple(_mount(value or "") for flag, value in instruction.flags if flag == "mount")


def _mount(text: str) -> Mount:
    fields = {name.strip().lower(): value for name, _, value in (part.partition("=") for part in text.split(","))}
    target = next((fields[name] for name in ("target", "dst", "destination") if name in fields), "")
    return Mount(
        kind=fields.get("type", "bind").lower(),
        image=fields.get("from"),
        source=fields.get("source", fields.get("src", ".")),
        id=fields.get("source", fields.get("src")) or fields.get("id") or posixpath.basename(target),
        optional=fields.get("required", "").lower() in {"false", "0", "f"},
        text=text,
    )


def list_secrets(instruction: Instruction) -> tuple[Mount, ...]:
    """Lists the secrets that a RUN mounts."""
    return tuple(mount for mount in list_mounts(instruction) if mount.kind == "secret")


def context_sources(stages: Iterable[Stage]) -> tuple[str, ...]:
    """Returns every path or pattern that stages copy or mount from the build context, each once."""
    sources: list[str] = []
    for instruction in (instruction for stage in stages for instruction in stage.instructions):
        if instruction.name in {"ADD", "COPY"} and instruction.flag("from") is None:
            sources += instruction.sources
        sources += (mount.source for mount in list_mounts(instruction) if mount.reads_context)
    return tuple(dict.fromkeys(sources))


def image_names(instruction: Instruction) -> tuple[str, ...]:
    """Returns the stages and images that an instruction reads, by the names that it gives them."""
    copied = instruction.flag("from") if instruction.name in {"ADD", "COPY"} else None
    mounted = [mount.image for mount in list_mounts(instruction)]
    return tuple(dict.fromkeys(name for name in (copied, *mounted) if name))


def buildkit_syntax(dockerfile: Dockerfile, target: str) -> str | None:
    """Finds the first thing in a stage, or one that it needs, that only BuildKit executes: `line 7: RUN --mount`."""
    for stage in needed_stages(dockerfile, dockerfile.stage(target)):
        for instruction in stage.instructions:
            if syntax := _only_buildkit(instruction, _PLAIN_FLAGS):
                return f"line {instruction.line}: {syntax}"
    return "line 1: # syntax=" if "syntax" in dockerfile.directives else None


def needed_stages(dockerfile: Dockerfile, stage: Stage) -> Iterator[Stage]:
    """Yields the stage and all those that it starts from or copies from, each once, the lowest first."""
    seen: dict[int, Stage] = {}

    def visit(current: Stage) -> None:
        names = [current.base, *(name for instruction in current.instructions for name in image_names(instruction))]
        for name in names:
            earlier = dockerfile.earlier(name, current)
            if earlier is not None and earlier.index not in seen:
                visit(earlier)
        seen[current.index] = current

    visit(stage)
    yield from seen.values()


def classic_refusal(instruction: Instruction, links: Collection[str]) -> str | None:
    """Names what Docker's classic builder refuses, or makes otherwise and succeeds, such as `RUN with a heredoc`.

    Seen with Docker 28: it runs `RUN <<EOF` without the lines below it, takes no notice of --exclude and --unpack,
    gives `ARG TARGETARCH` no value, and copies a link into a folder under the name of the link's target.

    Args:
        instruction: of a stage.
        links: of the build context.
    """
    if syntax := _only_buildkit(instruction, _PLAIN_FLAGS | {_LINK}):
        return syntax
    return f"{instruction.name} of a symbolic link" if _takes_one_of(instruction, links) else None


def podman_refusal(instruction: Instruction, folders: Collection[str]) -> str | None:
    """Names what Podman's service executes in another way than BuildKit, such as `COPY --exclude`.

    Seen with Podman 5: it takes no notice of --exclude, and --chmod changes files and not the folder that they are in.

    Args:
        instruction: of a stage.
        folders: of the build context.
    """
    if instruction.name not in {"ADD", "COPY"}:
        return None
    if instruction.flag("exclude") is not None:
        return f"{instruction.name} --exclude"
    takes_folder = instruction.flag("from") is not None or _takes_one_of(instruction, folders)
    if instruction.flag("chmod") is not None and takes_folder:
        return f"{instruction.name} --chmod of a folder, or of what a stage has,"
    return None


def _takes_one_of(instruction: Instruction, paths: Collection[str]) -> bool:
    """Says whether a source of COPY or ADD in the build context is one of these paths."""
    if instruction.name not in {"ADD", "COPY"} or instruction.flag("from") is not None:
        return False
    sources = (posixpath.normpath(source).strip("/") or "." for source in instruction.sources)
    return any(
        path.count("/") == source.count("/") and fnmatch.fnmatchcase(path, source)
        for source in sources
        for path in paths
    )


def find_run_after_volume(dockerfile: Dockerfile, stage: Stage) -> Instruction | None:
    """Finds a RUN behind a VOLUME, in a stage or those below it: only BuildKit keeps what it writes to the volume."""
    below = dockerfile.earlier(stage.base, stage)
    chain = [stage]
    while below is not None:
        chain.insert(0, below)
        below = dockerfile.earlier(below.base, below)
    steps = dropwhile(lambda step: step.name != "VOLUME", (step for one in chain for step in one.instructions))
    return next((step for step in steps if step.name == "RUN"), None)


def platform_arg(instruction: Instruction) -> str | None:
    """Finds the variable of an ARG that BuildKit alone gives a value, such as TARGETARCH; None without one."""
    pairs = instruction.pairs if instruction.name == "ARG" else ()
    return next((name for name, value in pairs if value is None and name in _PLATFORM_ARGS), None)


def _only_buildkit(instruction: Instruction, taken: frozenset[str]) -> str | None:
    if argument := platform_arg(instruction):
        return f"ARG {argument}"
    if instruction.heredocs:
        return f"{instruction.name} with a heredoc"
    plain = taken if instruction.name in {"ADD", "COPY"} else frozenset()
    flags = [flag for flag, _ in instruction.flags if instruction.name in {"ADD", "COPY", "RUN"} and flag not in plain]
    return f"{instruction.name} --{flags[0]}" if flags else None
