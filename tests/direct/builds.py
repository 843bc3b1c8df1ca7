"""A made-up base, a build context, and a direct builder of one stage on them."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

from tests import plans
from tests.direct.wheels import Node as TarNode
from tests.direct.wheels import tar_tree
from training_imgtool.context.context import Context
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.core.reference import parse_repository
from training_imgtool.direct.build import ParentImage, build_image, plan_stages
from training_imgtool.direct.files import Files
from training_imgtool.direct.image.image import DirectImage, StoredImage
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.layers.layers import MTIME
from training_imgtool.direct.stage_plan import StageInputs, split_stages
from training_imgtool.direct.tree import FILE, Attributes, Kind, Node, make_folder
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile.parse import parse
from training_imgtool.registry.manifests import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_LAYER_GZIP,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    parse_manifest,
    sha256_digest,
)

BASE_LAYER = b"not really a layer"
BASE = f"FROM example.com/base@sha256:{'1' * 64} AS base\n"
LOCKED = plans.locked()
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # what builders set where a base does not


def make_base(settings: dict[str, Any] | None = None, *, oci: bool = False, layer: str = "") -> tuple[Manifest, bytes]:
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin", "A=1"], "Cmd": ["python3"], **(settings or {})},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "d" * 64]},
            "history": [{"created_by": "base"}],
            "variant": "kept",
        }
    ).encode()
    types = (OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST) if oci else (DOCKER_CONFIG, DOCKER_LAYER_GZIP, DOCKER_MANIFEST)
    document = {
        "schemaVersion": 2,
        "mediaType": types[2],
        "config": Descriptor(types[0], sha256_digest(config), len(config)).document(),
        "layers": [
            Descriptor(layer or types[1], sha256_digest(BASE_LAYER), len(BASE_LAYER)).document() | {"future": "field"}
        ],
    }
    return parse_manifest(json.dumps(document).encode(), types[2], "base"), config


def make_parent(
    settings: dict[str, Any] | None = None, *, oci: bool = False, layer: str = "", tree: Node | None = None
) -> ParentImage:
    """A base with the files of a Debian, or those of `tree`."""
    manifest, config = make_base(settings, oci=oci, layer=layer)
    stored = StoredImage(manifest, config, parse_repository("example.com/base"))
    return ParentImage(stored=stored, files=Files((lambda: tree or debian(),)))


def debian(**added: Node) -> Node:
    """What a small Debian has, and more at the top."""
    children = {name: make_folder() for name in ("etc", "home", "opt", "srv")}
    children |= {"lib": Node(Kind.LINK, target="usr/lib"), "root": make_folder(Attributes(0o700))}
    local = make_folder(children={"bin": make_folder(children={"python3.11": FILE})})
    children |= {"tmp": make_folder(Attributes(0o1777)), "wheels": make_folder()}
    children |= {"usr": make_folder(children={"lib": make_folder(closed=True), "local": local})}
    return make_folder(children=children | added)


class Maker:
    """Builds the last stage of a text that begins below `AS base`."""

    def __init__(self, context: Context, tmp_path: Path) -> None:
        self.context = context
        self.cache = tmp_path / "cache"

    def __call__(
        self, text: str, settings: dict[str, Any] | None = None, *, oci: bool = False, tree: Node | None = None
    ) -> DirectImage:
        dockerfile = parse(BASE + "FROM base AS role\n" + text)
        inputs = StageInputs(context=self.context, locked=LOCKED)
        split = split_stages(dockerfile, "role", inputs)
        if split.needs_engine:
            raise NeedsEngineError(split.needs_engine)
        parent = make_parent(settings, oci=oci, tree=tree)
        tools = LayerTools(cache=LayerCache(self.cache), wheel_path=lambda _: Path(), find_interpreter=lambda _: None)
        planned = plan_stages(dockerfile, split.stages, inputs, parent)
        return build_image(planned, inputs, tools, parent=parent)


def read_settings(image: DirectImage) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(image.config)["config"]
    return settings


def read_tree(image: DirectImage) -> dict[str, TarNode]:
    found: dict[str, TarNode] = {}
    for layer in image.layers:
        data = b"".join(layer.open())
        assert sha256_digest(data) == layer.descriptor.digest
        tar_tree(
            io.BytesIO(subprocess.run(["gzip", "-dc"], input=data, capture_output=True, check=True).stdout),
            found,
            mtime=MTIME,
        )
    return found
