"""What `build` and `push` are asked for: what they refuse before they read anything, and how they name things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from training_imgtool.base.errors import UsageError
from training_imgtool.base.progress import Outcome
from training_imgtool.base.reference import parse_repository
from training_imgtool.make.request import BuildOptions, BuildResult, name_for_role
from training_imgtool.model.spec import Role

DIGEST = parse_repository("registry.example.com/team/image").digest(f"sha256:{'a' * 64}")
LONGEST = "x" * (128 - len("evaluator-"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "podman"}, "--engine podman: expected auto, buildx, direct"),
        ({"engine": "direct", "builder": "b", "push": True}, "--engine direct does not use buildx"),
        ({"engine": "buildx"}, "can only push images"),
        ({"builder": "b"}, "can only push images"),
        ({"tags": ("a",)}, "--tag names images in the registry"),
        ({"tags": ("a", "b c"), "push": True}, "--tag: 'b c' is not a tag"),
        ({"tags": (f"{LONGEST}x",), "push": True}, "--tag: 'evaluator-x"),
        ({"tags": (f"{LONGEST}x",), "push": True, "roles": (Role.MASTER, Role.PS)}, "--tag: 'evaluator-x"),
    ],
)
def test_options_that_no_run_can_carry_out(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        BuildOptions(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"push": True, "tags": (LONGEST,)},
        {"push": True, "tags": ("x" * 128,), "roles": (Role.MASTER,)},
        {"push": True, "engine": "buildx", "builder": "b"},
        {"push": True, "builder": "b"},
        {"engine": "direct"},
        {"layout": Path("x")},
    ],
)
def test_options_that_a_run_carries_out(options: dict[str, Any]) -> None:
    BuildOptions(**options)


def test_a_tag_names_the_role_where_there_are_several() -> None:
    assert (name_for_role("v1", Role.PS, of=1), name_for_role("v1", Role.PS, of=2)) == ("v1", "ps-v1")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ({"image_id": "sha256:1"}, "sha256:1"),
        ({"image_id": "sha256:1", "place": "oci:layout"}, "oci:layout"),
        ({"place": "oci:layout", "digest": DIGEST}, str(DIGEST)),
    ],
)
def test_a_result_is_named_by_where_others_find_it(where: dict[str, Any], name: str) -> None:
    assert BuildResult(role=Role.MASTER, outcome=Outcome.BUILT, key="k", tag=None, **where).reference == name
