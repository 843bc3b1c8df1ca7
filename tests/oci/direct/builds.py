"""A made-up base, and a direct builder of the image's own stage on it."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import plans
from tests.oci.direct.wheels import Node as TarNode
from tests.oci.direct.wheels import tar_tree
from training_imgtool.base.context.context import Context
from training_imgtool.base.reference import parse_repository
from training_imgtool.oci.direct.build import ParentImage, build_image, plan_stages
from training_imgtool.oci.direct.files import Files
from training_imgtool.oci.direct.tree import FILE, Attributes, Kind, Node, make_folder
from training_imgtool.oci.image.image import DirectImage, StoredImage
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.layers.layers import MTIME
from training_imgtool.oci.registry.manifests import (
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
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools
from training_imgtool.plan.recipes import make_copy

BASE_LAYER = b"not really a layer"
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
    """Appends files of a context to a made-up base: the image's own stage of a recipe."""

    def __init__(self, context: Context, tmp_path: Path) -> None:
        self.context = context
        self.cache = tmp_path / "cache"

    def __call__(
        self,
        code: Mapping[str, str] | None = None,
        settings: dict[str, Any] | None = None,
        *,
        oci: bool = False,
        layer: str = "",
        tree: Node | None = None,
        **changes: Any,
    ) -> DirectImage:
        """Makes the image that has each source of `code` at its target; `changes` are to the recipe."""
        copies = tuple(make_copy(self.context, source, target, "files") for source, target in (code or {}).items())
        recipe = plans.recipe(locked_variant=LOCKED, **{"code": copies, "working_folder": "/", **changes})
        parent = make_parent(settings, oci=oci, layer=layer, tree=tree)
        tools = LayerTools(cache=LayerCache(self.cache), wheel_path=lambda _: Path(), find_interpreter=lambda _: None)
        planned = plan_stages(recipe, recipe.make_stages()[-1:], parent, None)
        return build_image(recipe, planned, tools, None, parent=parent)


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
