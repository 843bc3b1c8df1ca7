"""A recipe on a made-up base: what lies where in its layers, its settings, and what is an engine's work."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.oci.direct.builds import LOCKED, PATH, Maker, debian, make_base, make_parent, read_settings, read_tree
from training_imgtool.base.context.context import scan
from training_imgtool.base.errors import FieldError, NeedsEngineError
from training_imgtool.model.lock import LockedDebian
from training_imgtool.model.recipe.recipe import PACKAGES
from training_imgtool.oci.direct.build import build_image, plan_stages
from training_imgtool.oci.direct.debian_layer import OpenedLibraries
from training_imgtool.oci.direct.tree import FILE, Attributes, Kind, Node, make_folder
from training_imgtool.oci.image.image import EMPTY, History, assemble
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.registry.manifests import OCI_LAYER_GZIP, Descriptor
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools
from training_imgtool.plan.recipes import make_copy

LAYER = Descriptor(OCI_LAYER_GZIP, f"sha256:{'c' * 64}", 9)


@pytest.mark.parametrize(
    ("changes", "settings", "expected"),
    [
        ({"entrypoint": ("x",)}, {}, {"Entrypoint": ["x"], "Cmd": None}),
        ({"user": "1000:1000"}, {"User": "5"}, {"User": "1000:1000"}),
        ({"user": None}, {"User": "5"}, {"User": "5"}),
        ({"labels": {"b": "2"}}, {"Labels": {"b": "0", "c": "3"}}, {"b": "2", "c": "3"}),
        ({"env": {"A": "2", "B": "$A"}}, {}, {"Env": ["PATH=/usr/bin:/bin", "A=2", "B=$A"]}),
        ({"env": {"A": "x"}}, {"Env": None}, {"Env": [f"PATH={PATH}", "A=x"]}),
        ({"working_folder": "/srv"}, {"WorkingDir": "/usr"}, {"WorkingDir": "/srv"}),
        ({}, {"Healthcheck": {"Test": ["NONE"]}}, {"Healthcheck": {"Test": ["NONE"]}}),
    ],
)
def test_settings(make: Maker, changes: dict[str, Any], settings: dict[str, Any], expected: dict[str, Any]) -> None:
    found = read_settings(make(None, settings, **changes))
    if "labels" in changes:
        found = found["Labels"]
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ({"code": "/app"}, {"/app": 0o755, "/app/a.py": 0o644, "/app/sub": 0o755, "/app/sub/run.sh": 0o755}),
        ({"code/sub": "/app/x/y"}, {"/app": 0o755, "/app/x": 0o755, "/app/x/y": 0o755, "/app/x/y/run.sh": 0o755}),
        ({"b.txt": "/opt/two/b.txt"}, {"/opt/two": 0o755, "/opt/two/b.txt": 0o644}),
        ({"b.txt": "/root/b.txt"}, {"/root": 0o700, "/root/b.txt": 0o644}),
        ({"b.txt": "/tmp/b.txt"}, {"/tmp": 0o1777, "/tmp/b.txt": 0o644}),
        ({"empty": "/app/none"}, {"/app": 0o755, "/app/none": 0o755}),
    ],
)
def test_files(tmp_path: Path, make: Maker, code: dict[str, str], expected: dict[str, int]) -> None:
    (tmp_path / "spec/empty").mkdir()
    make.context = scan(tmp_path / "spec")
    assert {path: node.mode for path, node in read_tree(make(code)).items()} == expected


def test_the_program_starts_in_a_folder_that_is_there(make: Maker) -> None:
    assert {path: node.mode for path, node in read_tree(make(working_folder="/new/er")).items()} == {
        "/new": 0o755,
        "/new/er": 0o755,
    }


@pytest.mark.parametrize(
    ("code", "settings", "why"),
    [
        ({"b.txt": "/usr/lib/x/b.txt"}, {}, "too many files in /usr/lib"),
        ({"b.txt": "/lib/x/b.txt"}, {}, "too many files in /usr/lib"),
        ({"b.txt": "/dev/x/b.txt"}, {}, "/dev"),
        ({"b.txt": "/srv/x"}, {"Volumes": {"/srv": {}}}, "/srv, a volume of the base"),
        ({}, {"WorkingDir": "/none"}, "no folder /none, which is its WORKDIR"),
        ({}, {"WorkingDir": "srv"}, "srv, the base's WORKDIR, is not an absolute path"),
        ({}, {"Volumes": {"/usr/local/bin/python3.11": {}}}, "as a volume, but it is a file"),
        ({}, {"OnBuild": ["RUN x"]}, "ONBUILD"),
        ({}, {"Env": ["A=1", "B"]}, "without a value"),
        ({}, {"Env": ["A=1", "B=2", "A=3"]}, "a variable twice"),
    ],
)
def test_what_is_for_an_engine(make: Maker, code: dict[str, str], settings: dict[str, Any], why: str) -> None:
    with pytest.raises(NeedsEngineError, match=why):
        make(code, settings)


BASES = {
    "link": {"app": Node(Kind.LINK, target="real"), "real": make_folder(Attributes(0o750, 5, 6))},
    "owned": {"app": make_folder(Attributes(0o700, 5, 5), children={"sub": make_folder(Attributes(0o777, 9, 9))})},
    "file": {"app": FILE},
    "dangling": {"app": Node(Kind.LINK, target="/no/where")},
    "loop": {"app": Node(Kind.LINK, target="app")},
    "unsure": {"app": make_folder(None)},
    "setgid": {"app": make_folder(Attributes(0o2755))},
    "inner file": {"app": make_folder(children={"sub": FILE})},
    "inner link": {"app": make_folder(children={"sub": Node(Kind.LINK, target="/srv")})},
}


@pytest.mark.parametrize(
    ("base", "code", "expected"),
    [
        ("link", {"code": "/app"}, {"/real": (0o750, (5, 6)), "/real/sub": (0o755, (0, 0))}),
        ("link", {"b.txt": "/app/b.txt"}, {"/real": (0o750, (5, 6)), "/real/b.txt": (0o644, (0, 0))}),
        ("owned", {"code": "/app"}, {"/app": (0o700, (5, 5)), "/app/sub": (0o755, (0, 0))}),
        ("owned", {"b.txt": "/app/sub/b.txt"}, {"/app/sub": (0o777, (9, 9)), "/app/sub/b.txt": (0o644, (0, 0))}),
        ("dangling", {"code": "/app"}, {"/no": (0o755, (0, 0)), "/no/where": (0o755, (0, 0))}),
        ("inner link", {"b.txt": "/app/sub/b.txt"}, {"/srv/b.txt": (0o644, (0, 0))}),
    ],
)
def test_a_base_that_has_the_place(make: Maker, base: str, code: dict[str, str], expected: dict[str, Any]) -> None:
    """A folder on the way is named where a layer that only implies it would change it; a link never is."""
    found = read_tree(make(code, tree=debian(**BASES[base])))
    assert {path: (found[path].mode, found[path].owner) for path in expected} == expected
    assert not any(path.startswith("/app") for path in found) or base == "owned"


@pytest.mark.parametrize(
    ("base", "code", "why"),
    [
        ("file", {"code": "/app"}, "/app is a file in the base"),
        ("file", {"b.txt": "/app/x/y"}, "/app/x: /app is a file"),
        ("dangling", {"b.txt": "/app"}, "/app is a link in the base"),
        ("setgid", {"code": "/app"}, "/app/sub would be made in a folder that has the set-group-ID bit"),
        ("loop", {"b.txt": "/app/b.txt"}, "/app: too many links"),
        ("unsure", {"b.txt": "/app/b.txt"}, "engines give the base's folder /app different modes"),
        ("inner file", {"code": "/app"}, "/app/sub is a file or a link in the base"),
        ("inner link", {"code": "/app"}, "/app/sub is a file or a link in the base"),
        ("owned", {"b.txt": "/app/sub"}, "/app/sub is a folder in the base"),
    ],
)
def test_a_base_on_which_engines_fail_or_differ(make: Maker, base: str, code: dict[str, str], why: str) -> None:
    with pytest.raises(NeedsEngineError, match=why):
        make(code, tree=debian(**BASES[base]))


@pytest.mark.parametrize(
    ("tree", "settings", "why"),
    [
        (debian(opt=make_folder(children={"venv": make_folder()})), {}, "already has /opt/venv"),
        (debian(opt=Node(Kind.LINK, target="data"), data=make_folder()), {}, "link"),
        (debian(opt=make_folder(Attributes(0o700))), {}, "mode 755"),
        (debian(wheels=FILE), {}, "/wheels is a file"),
        (debian(usr=make_folder()), {}, "has no /usr/local/bin/python3.11"),
        *(
            (debian(), {"Volumes": {volume: {}}}, f"{volume} is a volume")
            for volume in ("/", "/opt", "/opt/venv/", "/opt/venv/lib", "/wheels/cpu")
        ),
        (debian(), {"Shell": ["powershell", "-Command"]}, "sets the shell"),
        (debian(), {"Env": ["PYTHONHOME=/x"]}, "sets PYTHONHOME, which changes what Python installs"),
    ],
)
def test_a_base_without_room_for_the_wheels(tree: Node, settings: dict[str, Any], why: str) -> None:
    recipe = plans.recipe(locked_variant=LOCKED)
    (packages,) = (stage for stage in recipe.make_stages() if stage.name == PACKAGES)
    with pytest.raises(NeedsEngineError, match=why):
        plan_stages(recipe, (packages,), make_parent(settings, tree=tree), None)


class _Packages:
    """A layer of Debian packages that has /srv/data, and a record of what was opened."""

    def __init__(self) -> None:
        self.opened: list[OpenedLibraries] = []

    def layer(self, history: str, opened: OpenedLibraries) -> LayerSource:
        self.opened.append(opened)
        return LayerSource(descriptor=LAYER, diff_id=f"sha256:{'b' * 64}", history=history, open=lambda: iter((b"",)))

    def tree(self, opened: OpenedLibraries) -> Node:
        self.opened.append(opened)
        return make_folder(children={"srv": make_folder(children={"data": make_folder(Attributes(0o700, 5, 5))})})


def test_debian_packages_are_a_layer_that_somebody_else_makes(tmp_path: Path) -> None:
    locked = replace(LOCKED, debian=LockedDebian(requested=("libgomp1",)))
    recipe = plans.recipe(locked_variant=locked, library_path="/x", libraries=("libc.so.6",))
    packages, parent = _Packages(), make_parent()
    system, *_ = stages = recipe.make_stages()
    planned = plan_stages(recipe, (system, stages[-1]), parent, packages)
    tools = LayerTools(cache=LayerCache(tmp_path / "c"), wheel_path=lambda _: Path(), find_interpreter=lambda _: None)
    image = build_image(recipe, planned, tools, packages, parent=parent)
    assert image.layers[0].descriptor == LAYER
    assert {*packages.opened} == {OpenedLibraries(("libc.so.6",), "/x")}
    with pytest.raises(NeedsEngineError, match="the base runs as the user 5"):
        plan_stages(recipe, (system,), make_parent({"User": "5"}), packages)


def test_links_of_the_context_are_followed(tmp_path: Path, make: Maker) -> None:
    folder = tmp_path / "spec"
    (folder / "linked").symlink_to("code")
    (folder / "one.txt").symlink_to("b.txt")
    (folder / "top").symlink_to(".")
    make.context = scan(folder)
    found = read_tree(make({"linked": "/app", "one.txt": "/app/c.txt"}))
    assert {path: node.kind for path, node in found.items()} == {
        "/app": "folder", "/app/a.py": "file", "/app/c.txt": "file", "/app/sub": "folder", "/app/sub/run.sh": "file",
    }  # fmt: skip
    with pytest.raises(FieldError, match=r"top: does not exist, or \.dockerignore leaves it out"):
        make({"top": "/app"})


def test_no_layer_is_there_twice_or_empty(tmp_path: Path, make: Maker) -> None:
    (tmp_path / "spec/empty").mkdir()
    make.context = scan(tmp_path / "spec")
    places = [("code", "/app"), ("code/sub", "/app/sub"), ("b.txt", "/app/b.txt"), ("empty", "/app/none")]
    for number in range(20):
        chance = random.Random(number)
        code = dict(chance.sample(places, chance.choice((0, 1, 2))))
        again = code if chance.random() < 0.6 else dict(chance.sample(places, 1))
        files = tuple(make_copy(make.context, *place, "files") for place in again.items())
        image = make(code, files=files, working_folder=chance.choice(("/", "/app")))
        assert len({*image.diff_ids}) == len(image.diff_ids), number
        assert EMPTY not in image.diff_ids
        assert {"/app/sub/run.sh"} <= {*read_tree(image)} or not {"code", "code/sub"} & {*code, *again}


def test_a_layer_that_the_image_has_already_is_refused(make: Maker) -> None:
    (layer,) = make({"b.txt": "/app/b.txt"}, working_folder="/app").layers
    manifest, config = make_base()
    for diff_id in (layer.diff_id, EMPTY, "sha256:" + "d" * 64):
        others = (replace(layer, diff_id="sha256:" + "1" * 64), layer, replace(layer, diff_id=diff_id))
        lines = tuple(History(text="a step", layer=other) for other in others)
        with pytest.raises(NeedsEngineError, match="the image already has this layer"):
            assemble(manifest, config, {}, lines)
