"""The facts about an image, from a container or from the registry. None means that nobody looked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from training_imgtool.direct.tree import Attributes
from training_imgtool.spec.model import Role

Fields = Mapping[str, Any]


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    MISMATCH = "MISMATCH"
    WARNING = "warning"
    UNSEEN = "not looked at"
    UNPROVEN = "NOT PROVEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report.

    Attributes:
        check: its name, as in docs/verify.md.
        role: whose image.
        status: how the check came out.
        found: what is in the image.
        expected: what should be, or why verify did not look.
        complaints: the mismatches that `found` sums up, one by one.
    """

    check: str
    role: Role
    status: Status
    found: str
    expected: str = ""
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of an image.

    Attributes:
        digest: in the registry; empty for an image that is only in an engine.
        size: compressed bytes in the registry, or unpacked ones in an engine.
        own: whether it lies above the base.
        history: the instruction that made it.
    """

    digest: str
    size: int
    own: bool
    history: str


@dataclass(frozen=True, slots=True)
class Node:
    """What is at a path.

    Attributes:
        kind: the type flag of its entry; a hard link is the file that it is another name of.
        attributes: mode and owner; None for a folder that only the paths in it tell of, and where nobody predicts them.
        content: of a file, its SHA-256 in hexadecimal; of a link, where it leads; empty where nobody looked.
        layer: the number of the layer that put it there.
    """

    kind: str
    attributes: Attributes | None
    content: str = ""
    layer: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one layer's archive holds of interest.

    Attributes:
        items: as `interesting_paths.describe` returns them, in the order of the archive.
        folders: unpacked bytes right in each folder.
        removed: paths that the layer removes from the layers below.
        emptied: folders whose content in the layers below it hides.
        nodes: every entry, and every folder that entries lie in.
        hashed: whether the nodes have their contents.
        diff_id: the digest of the archive; None when the layer was not read to its end.
        faults: what makes an engine refuse the layer, a phrase each.
    """

    items: tuple[Fields, ...]
    folders: Mapping[str, int]
    removed: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    hashed: bool = False
    diff_id: str | None = None
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an image has above its base, by the lock, the code and the base's digest.

    Attributes:
        nodes: what is where.
        whole: whether these are all paths; else those of /opt/venv.
        compiled: whether this machine compiled the bytecode.
        why: why only an engine can make the rest, or the bytecode is not compiled here.
        removed: what of the base is not there any more.
    """

    nodes: Mapping[str, Node]
    whole: bool
    compiled: bool = True
    why: str = ""
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files of interest in the whole image, by path.

    `complete` says that nothing was left out; else only what is here is known, and what is missing may be in
    layers that were not read.
    """

    items: Mapping[str, Fields]
    folders: Mapping[str, int]  # unpacked bytes below each folder; "" is the root
    complete: bool
    nodes: Mapping[str, Node] = field(default_factory=dict)  # that layers above the base put there
    removed: Mapping[str, int] = field(default_factory=dict)  # what they remove that none of them put there, by layer

    def of(self, kind: str) -> tuple[Fields, ...]:
        """Returns the items of a kind, by path."""
        return tuple(self.items[path] for path in sorted(self.items) if self.items[path]["kind"] == kind)

    def list_libraries(self) -> frozenset[str]:
        """Lists the CUDA libraries of NVIDIA's wheels, by the names that programs open."""
        return frozenset(
            PurePosixPath(item["path"]).name for item in self.of("library") if item["path"].startswith("opt/venv/")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a container printed: the parts of `program`, by name; `fault` says why it did not even start."""

    parts: Mapping[str, Fields] = field(default_factory=dict)
    fault: str | None = None
    errors: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known of one role's image."""

    image: str  # a digest reference, or an image ID
    config: Mapping[str, Any]  # the whole image config: architecture, config, rootfs, history
    layers: tuple[Layer, ...]
    listings: Mapping[int, Listing]  # by the layer's number, lowest 0; those that were read to their ends
    damaged: Mapping[int, Listing] = field(default_factory=dict)  # those that could not be
    tree: Tree
    base_config: Mapping[str, Any] | None
    expected: Expected | None = None
    unmade: str = "nobody made the image again"  # why not, where `expected` is None
    run: Started | None = None
    gpus: bool = False  # the container was given GPUs
    no_gpus: str = "no container was run"  # why not, otherwise

    @property
    def settings(self) -> Mapping[str, Any]:
        """The `config` object: Env, Entrypoint, User and so on."""
        settings: Mapping[str, Any] = self.config.get("config") or {}
        return settings

    @property
    def env(self) -> Mapping[str, str]:
        """The image's environment."""
        return read_env(self.settings)


def read_env(settings: Mapping[str, Any]) -> dict[str, str]:
    """Reads the environment of a `config` object."""
    pairs = (str(line).partition("=") for line in settings.get("Env") or [])
    return {name: value for name, _, value in pairs}


def read_platform(config: Mapping[str, Any]) -> str:
    """Reads `os/architecture` of an image config."""
    return f"{config.get('os')}/{config.get('architecture')}"
