"""The packages in an image's environment, out of the metadata in it. pip itself is not in the image."""

from __future__ import annotations

from training_imgtool.verify.facts import Tree
from training_imgtool.versions.closure import Package, parse_metadata


def find_installed(tree: Tree) -> tuple[Package, ...]:
    """Finds every package whose metadata is in the tree, by name."""
    packages = [
        parse_metadata(item.get("text", ""), item["path"].partition("/site-packages/")[2].partition("-")[0])
        for item in tree.of("metadata")
    ]
    return tuple(sorted(packages, key=lambda package: (package.name, package.version)))
