"""What the instructions of a stage read: the build context, other stages and images, the mounts of a RUN.

The rules of `--mount` are those of BuildKit's `frontend/dockerfile/instructions/commands_runmount.go`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from training_imgtool.dockerfile.parse import Dockerfile, Instruction, Stage

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


def platform_arg(instruction: Instruction) -> str | None:
    """Finds the variable of an ARG that BuildKit alone gives a value, such as TARGETARCH; None without one."""
    pairs = instruction.pairs if instruction.name == "ARG" else ()
    return next((name for name, value in pairs if value is None and name in _PLATFORM_ARGS), None)
