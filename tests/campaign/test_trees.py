"""The comparison itself: it sees each kind of difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.campaign.cases import archive
from tests.campaign.run import COMPARED, Image, differences
from tests.campaign.trees import tree_of

LOWER = archive(("d/ 700 5 6", "d/x", "l -> d", "f", "e/", "e/x"), salt=0)


def test_layers() -> None:
    tree = tree_of((LOWER, archive(("d/y", ".wh.f", "e/.wh..wh..opq", "l/", "l/z"), salt=1)))
    shown = {path: str(node).rpartition(" ")[0] if node.kind == "file" else str(node) for path, node in tree.items()}
    expected = {"d": "folder 755 0:0", "d/x": "file 644 0:0", "d/y": "file 644 0:0", "e": "folder 755 0:0"}
    expected |= {"l": "folder 755 0:0", "l/z": "file 644 0:0"}
    assert {path: text for path, text in shown.items() if not path.startswith("etc")} == expected


@pytest.mark.parametrize(
    "other",
    [
        ("d/ 750 5 6", "d/x", "l -> d", "f", "e/", "e/x"),
        ("d/ 700 5 7", "d/x", "l -> d", "f", "e/", "e/x"),
        ("d/ 700 5 6", "d/x", "l -> e", "f", "e/", "e/x"),
        ("d/ 700 5 6", "d/x", "l -> d", "f/", "e/", "e/x"),
        ("d/ 700 5 6", "d/x", "l -> d", "f", "e/", "e/x", "more"),
        ("d/ 700 5 6", "d/x", "l -> d", "f", "e/"),
    ],
)
def test_every_difference_of_a_tree_is_seen(other: tuple[str, ...]) -> None:
    settings = dict.fromkeys(COMPARED)
    one = Image(tree_of((LOWER,)), settings)
    assert differences(one, one) == []
    assert len(differences(one, Image(tree_of((archive(other, salt=0),)), settings))) == 1
    changed = {path: replace(node, content="other") for path, node in one.tree.items() if path == "f"}
    assert len(differences(one, Image({**one.tree, **changed}, settings))) == 1


@pytest.mark.parametrize("key", COMPARED)
def test_every_difference_of_a_config_is_seen(key: str) -> None:
    one = Image({}, dict.fromkeys(COMPARED))
    assert len(differences(one, Image({}, one.settings | {key: ["x"]}))) == 1
