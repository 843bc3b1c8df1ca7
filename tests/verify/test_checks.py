"""Findings from facts that no image here has: GPUs, other Pythons, CUDA laid out in every way, containers that fail."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.verify import images
from training_imgtool.context.context import Context
from training_imgtool.core.settings import from_environment
from training_imgtool.dockerfile.parse import parse
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.spec.model import Role
from training_imgtool.verify.checks import check
from training_imgtool.verify.checks.settings import plan_settings
from training_imgtool.verify.facts import Expected, Facts, Fields, Finding, Layer, Listing, Started, Status, Tree

BASE: dict[str, Any] = {
    "os": "linux",
    "architecture": "amd64",
    "config": {"Env": ["PATH=/usr/bin", "CUDA_VERSION=12.2.2", "NV_CUDNN_VERSION=8.9.6.50-1"]},
    "rootfs": {"diff_ids": ["sha256:base"]},
    "history": [{"created_by": "base"}],
}
SITE = "opt/venv/lib/python3.10/site-packages"
WHEELS = ("nvidia-cuda-nvcc-cu12", "12.2.140"), ("tensorflow", "2.15.1")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[RoleImage, Any, Context]:
    """The image of a master with a GPU, and its spec."""
    root = tmp_path_factory.mktemp("gpu")
    wheels = tuple(plans.wheel(*one) for one in WHEELS)
    locked = plans.locked("gpu", wheels=wheels, roles=(Role.MASTER,), cuda="12.2.2", cudnn="8.9.6.50")
    folder = images.write_spec(root / "spec", locked)
    settings = from_environment({"HOME": str(root), "IMGTOOL_REGISTRY": "127.0.0.1:9/x"})
    inputs = images.inputs_of(folder, settings)
    return inputs.images[0], inputs.spec_file.spec, inputs.context


def _metadata(*packages: tuple[str, str]) -> list[Fields]:
    paths = {f"{SITE}/{name}-{version}.dist-info/METADATA": (name, version) for name, version in packages}
    return [
        {"path": path, "kind": "metadata", "text": f"Name: {name}\nVersion: {version}\n"}
        for path, (name, version) in paths.items()
    ]


def _files(kind: str, *paths: str, size: int = 1000) -> list[Fields]:
    return [{"path": path, "kind": kind, "size": size} for path in paths]


def _tree(items: Iterable[Fields], *, complete: bool = True) -> Tree:
    return Tree(items={one["path"]: one for one in items}, folders={"": 100}, complete=complete)


XLA = _files("tool", f"{SITE}/nvidia/cuda_nvcc/bin/ptxas", f"{SITE}/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc")
SYSTEM = _files("library", "usr/lib/libcudnn.so.8.9.6", "usr/local/cuda/lib64/libcudart.so.12.2.140")
VENV = [
    {"path": "opt/venv/pyvenv.cfg", "kind": "python", "text": "home = /usr/bin\nversion = 3.10\n", "size": 9},
    {"path": "opt/venv/bin/python", "kind": "python", "link": "/usr/bin/python3.10", "size": 0},
    {"path": "app/trainer/task.py", "kind": "source", "text": "import tensorflow\n", "size": 9},
    {"path": f"{SITE}/tensorflow-2.15.1.dist-info/RECORD", "kind": "record", "names": ["tensorflow"], "size": 9},
]
PYTHON = _files("python", "usr/bin/python3.10")
GOOD_ITEMS = [*_metadata(*WHEELS), *XLA, *SYSTEM, *VENV, *PYTHON]
OPEN: list[dict[str, Any]] = [
    {"name": "libcublas.so.12"},
    {"name": "libcudart.so.12", "version": 12020},
    {"name": "libcudnn.so.8", "version": 8906},
]
RAN: dict[str, Fields] = {
    "tensorflow": {"version": "2.15.1", "build": {"is_cuda_build": True, "cuda_version": "12.2", "cudnn_version": "8"}},
    "compute": {"gpus": [], "used": ["/CPU:0"]},
    "trainer": {"file": "/app/trainer/task.py"},
    "end": {"late": False, "signal": 0},
}


def _facts(image: RoleImage, **changes: Any) -> Facts:
    settings = plan_settings(image.dockerfile, BASE["config"])
    config = {**BASE, "config": settings, "rootfs": {"diff_ids": ["sha256:base", "sha256:own"]}}
    looked = {
        "python": {"version": "3.10.12"},
        "libraries": {"libraries": changes.pop("opened", OPEN)},
    }
    parts = RAN | looked | changes.pop("ran", {})
    values: dict[str, Any] = {
        "image": "x@sha256:1",
        "config": config,
        "layers": (
            Layer(digest="sha256:b", size=2_000_000_000, own=False, history="base"),
            Layer(digest="sha256:o", size=1000, own=True, history="COPY"),
        ),
        "listings": {1: Listing(items=(), folders={})},
        "tree": _tree(changes.pop("items", GOOD_ITEMS)),
        "base_config": BASE,
        "expected": Expected(nodes={}, whole=True),
        "run": Started(parts=parts),
        "no_gpus": "none here",
    }
    return Facts(**(values | changes))


def _without_engine(image: RoleImage, items: Iterable[Fields], **changes: Any) -> Facts:
    listing = Listing(items=tuple(items), folders={}, removed=changes.pop("removed", ()))
    values: dict[str, Any] = {"run": None, "listings": {1: listing}, "no_gpus": "no container was run"}
    facts = _facts(image, **(values | changes))
    return replace(facts, tree=_tree(items, complete=False))


def _of(gpu: tuple[RoleImage, Any, Context], facts: Facts) -> dict[str, Finding]:
    return {one.check: one for one in check(gpu[0], facts, gpu[1], gpu[2])}


def _wrong(found: dict[str, Finding]) -> set[str]:
    return {name for name, one in found.items() if one.status is Status.MISMATCH}


def test_libraries_of_wheels_open_by_their_names(gpu: tuple[RoleImage, Any, Context]) -> None:
    items = [*GOOD_ITEMS, *_files("library", f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11")]
    assert _tree(items).list_libraries() == {"libcusolver.so.11"}
    opened = [*OPEN, {"name": "libcusolver.so.11"}]
    assert _of(gpu, _facts(gpu[0], items=items, opened=opened))["libraries"].found == "4 open, 1 from wheels"
    closed = [*OPEN, {"name": "libcusolver.so.11", "error": "cannot open"}]
    found = _of(gpu, _facts(gpu[0], items=items, opened=closed))["libraries"]
    assert (found.status, found.found) == (Status.MISMATCH, "libcusolver.so.11 does not open: cannot open")


def test_a_good_gpu_image_has_no_mismatch_and_says_that_no_gpu_was_used(gpu: tuple[RoleImage, Any, Context]) -> None:
    found = _of(gpu, _facts(gpu[0]))
    assert _wrong(found) == set()
    assert (found["gpu"].status, found["gpu"].expected) == (Status.UNSEEN, "none here")
    assert (found["cuda"].found, found["cudnn"].found) == ("12.2", "8.9.6")


@pytest.mark.parametrize(
    ("changes", "wrong", "says"),
    [
        ({"run": Started(fault="no such file")}, {"python"}, "does not start: no such file"),
        ({"ran": {"tensorflow": {"version": "2.14.0", "build": {}}}}, {"tensorflow"}, "2.14.0"),
        ({"ran": {"tensorflow": {"error": "ImportError", "message": "libx"}}}, {"tensorflow"}, "ImportError: libx"),
        ({"ran": {"tensorflow": {"version": "2.15.1", "build": {"is_cuda_build": False}}}}, {"tensorflow build"}, ""),
        (
            {"ran": {"tensorflow": {"version": "2.15.1", "build": {"is_cuda_build": True, "cuda_version": "11.8"}}}},
            {"tensorflow build"},
            "CUDA 11.8",
        ),
        ({"ran": {"compute": {"error": "InternalError", "message": "cuBLAS"}}}, {"compute"}, "cuBLAS"),
        ({"opened": [*OPEN[:2], {"name": "libcudnn.so.8", "error": "cannot open"}]}, {"libraries"},
         "libcudnn.so.8 does not open: cannot open"),
        ({"opened": [{**OPEN[1], "version": 11080}, OPEN[2]]}, {"cuda"}, "11.8"),
        ({"opened": [OPEN[1], {**OPEN[2], "version": 90300}]}, {"cudnn"}, "9.3.0"),
        ({"items": [*_metadata(*WHEELS), *SYSTEM, *VENV, *PYTHON]}, {"xla"}, "no ptxas and no libdevice"),
        (
            {"items": [*GOOD_ITEMS, *_files("library", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.8", size=700_000_000),
                       *_files("library", f"{SITE}/nvidia/nvtx/lib/libnvToolsExt.so.1", size=50_000_000)]},
            {"cuda once"},
            "libcudnn in the system and in wheels (700.0 MB more)",
        ),
        ({"gpus": True}, {"gpu"}, "TensorFlow sees none"),
        ({"config": {**BASE, "architecture": "arm64"}}, {"platform"}, "linux/arm64"),
    ],
)  # fmt: skip
def test_faults_seen_from_inside(
    gpu: tuple[RoleImage, Any, Context], changes: dict[str, Any], wrong: set[str], says: str
) -> None:
    found = _of(gpu, _facts(gpu[0], **changes))
    assert wrong <= _wrong(found)
    assert says in found[next(iter(wrong))].found
    if not {"config", "run"} & changes.keys():
        assert wrong == _wrong(found)


@pytest.mark.parametrize("python", ["3.11.4", "3.9.2"])
def test_a_wrong_python(gpu: tuple[RoleImage, Any, Context], python: str) -> None:
    facts = _facts(gpu[0])
    assert facts.run is not None
    found = _of(gpu, replace(facts, run=Started(parts={**facts.run.parts, "python": {"version": python}})))
    assert _wrong(found) == {"python"}
    assert (found["python"].found, found["python"].expected) == (python, "3.10")


def test_gpus_that_compute(gpu: tuple[RoleImage, Any, Context]) -> None:
    ran = {"compute": {"gpus": ["a", "b"], "used": ["/GPU:0", "/GPU:1"]}}
    assert _of(gpu, _facts(gpu[0], gpus=True, ran=ran))["gpu"].found == "2 visible, a product of matrices on each"
    failed = _of(gpu, _facts(gpu[0], gpus=True, ran={"compute": {"error": "InternalError", "message": "cuBLAS"}}))[
        "gpu"
    ]
    assert (failed.status, failed.found) == (Status.MISMATCH, "InternalError: cuBLAS")
    nothing = _of(gpu, _facts(gpu[0], gpus=True, run=Started(parts={"end": RAN["end"]})))["gpu"]
    assert (nothing.status, nothing.found) == (Status.MISMATCH, "nothing was computed")


@pytest.mark.parametrize(
    ("end", "status", "says"),
    [
        ({"late": True, "signal": 9}, Status.WARNING, "does not end"),
        ({"late": False, "signal": 11}, Status.MISMATCH, "killed by signal 11"),
    ],
)
def test_an_import_that_did_not_come_back(
    gpu: tuple[RoleImage, Any, Context], end: dict[str, Any], status: Status, says: str
) -> None:
    parts = {name: one for name, one in RAN.items() if name != "trainer"} | {"importing": {"name": "t"}, "end": end}
    found = _of(gpu, _facts(gpu[0], run=Started(parts=parts)))["trainer"]
    assert found.status is status
    assert says in found.found


def test_a_trainer_that_ends_the_program_is_a_warning(gpu: tuple[RoleImage, Any, Context]) -> None:
    found = _of(gpu, _facts(gpu[0], ran={"trainer": {"left": "2"}}))["trainer"]
    assert found.status is Status.WARNING
    assert "left with exit code 2" in found.found


OWN = [*_metadata(*WHEELS), *XLA, *VENV]


def test_what_lies_in_layers_that_were_not_read_is_not_called_ok(gpu: tuple[RoleImage, Any, Context]) -> None:
    found = _of(gpu, _without_engine(gpu[0], OWN))
    assert _wrong(found) == set()
    unseen = {name for name, one in found.items() if one.status is Status.UNSEEN}
    assert unseen == {"python", "libraries", "gpu"}
    assert found["cuda"].found == "12.2.2 by the base's CUDA_VERSION"
    assert found["cudnn"].found == "8.9.6.50 by the base's NV_CUDNN_VERSION"
    assert not {"compute", "tensorflow build"} & found.keys()
    found = _of(gpu, _without_engine(gpu[0], OWN, listings={}))
    assert {found[name].status for name in ("wheels", "pip check", "cuda once")} == {Status.UNSEEN}


def test_cudas_libraries_that_lie_there_are_not_opened_without_an_engine(gpu: tuple[RoleImage, Any, Context]) -> None:
    planned = gpu[0].plan.locked.variant.libraries
    files = _files("library", *(f"usr/lib/{name}" for name in planned))
    found = _of(gpu, _without_engine(gpu[0], [*OWN, *files]))["libraries"]
    assert (found.status, found.found) == (Status.OK, f"{len(planned)} are there, not opened")
    assert _of(gpu, _without_engine(gpu[0], [*OWN, *files[1:]]))["libraries"].status is Status.UNSEEN


@pytest.mark.parametrize(
    ("script", "home", "helper", "status"),
    [
        ("tools/train.py", ".", "app/tools/helper.py", Status.OK),
        ("tools/train.py", ".", "app/helper.py", Status.MISMATCH),
        ("train.py", ".", "app/helper.py", Status.OK),
        (None, "code", "app/code/helper.py", Status.OK),
        (None, "code", "app/helper.py", Status.MISMATCH),
    ],
)
def test_where_a_program_finds_its_modules(
    gpu: tuple[RoleImage, Any, Context], script: str | None, home: str, helper: str, status: Status
) -> None:
    file, module = script or f"{home}/train.py", None if script else "train"
    entry = replace(gpu[0].plan.entry, module=module, script=script, file=file, home=home)
    image = replace(gpu[0], plan=replace(gpu[0].plan, entry=entry))
    texts = {f"app/{file}": "import helper\n", helper: ""}
    code = [{"path": path, "kind": "source", "text": text, "size": 9} for path, text in texts.items()]
    found = _of((image, *gpu[1:]), _without_engine(image, [*_metadata(*WHEELS), *XLA, *code]))["trainer"]
    assert (found.status, "no module helper" in found.found) == (status, status is Status.MISMATCH)


@pytest.mark.parametrize(
    ("items", "removed", "check_name", "says"),
    [
        (OWN, ("usr/lib/libcudnn.so.8",), "libraries", "libcudnn.so.8 removed by a layer above the base"),
        ([*OWN, *_files("library", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.8")], (), "cuda once", "on a base with CUDA"),
        ([*OWN, *_files("library", "usr/lib/libcudnn.so.9.3.0")], (), "cudnn", "9.3.0 by its file's name"),
        ([one for one in OWN if one["kind"] != "tool"], (), "xla", "no ptxas"),
        ([{**one, "link": "/usr/bin/python3.12"} if "link" in one else one for one in OWN], (), "python", "python3.12"),
        (
            [{**one, "text": "version = 3.9"} if one["path"].endswith("cfg") else one for one in OWN],
            (),
            "python",
            "3.9",
        ),
        ([one for one in OWN if "tensorflow-" not in str(one["path"])], (), "tensorflow", "no tensorflow"),
    ],
)
def test_faults_that_layers_tell(
    gpu: tuple[RoleImage, Any, Context], items: list[Fields], removed: tuple[str, ...], check_name: str, says: str
) -> None:
    found = _of(gpu, _without_engine(gpu[0], items, removed=removed))
    assert check_name in _wrong(found)
    assert says in found[check_name].found


@pytest.mark.parametrize(
    ("asks", "reason"),
    [
        ({}, None),
        ({"env": {"OTHER": "1"}}, None),
        ({"env": {"OTHER": "1", "XLA_FLAGS": "--x"}}, "the spec sets XLA_FLAGS"),
        ({"env": {"TF_XLA_FLAGS": "--x"}}, "the spec sets TF_XLA_FLAGS"),
        ({"system_packages": ("git", "cuda-nvcc-12-2")}, "the spec installs cuda-nvcc-12-2"),
    ],
)
def test_a_compiler_is_missed_where_somebody_asked_for_it(
    gpu: tuple[RoleImage, Any, Context], asks: dict[str, Any], reason: str | None
) -> None:
    plan = gpu[0].plan
    locked = replace(plan.locked, wheels=tuple(wheel for wheel in plan.locked.wheels if "nvcc" not in wheel.name))
    image = replace(gpu[0], plan=replace(plan, locked=locked, **asks))
    found = _of((image, *gpu[1:]), _facts(image, items=[one for one in GOOD_ITEMS if one["kind"] != "tool"]))["xla"]
    assert found.status is (Status.MISMATCH if reason else Status.WARNING)
    assert (reason or "add nvidia-cuda-nvcc") in found.expected


def _suspect(path: str, data: bytes, *, recorded: bool = False) -> Fields:
    head = base64.b64encode(data).decode()
    return {"path": path, "kind": "suspect", "size": len(data), "head": head, "sha256": "x", "recorded": recorded}


@pytest.mark.parametrize(
    ("told", "secret"),
    [
        (_suspect("app/key", b"-----BEGIN PRIVATE KEY-----"), True),
        (_suspect("app/server.pem", b"-----BEGIN CERTIFICATE-----"), False),
        (_suspect("app/server.key", b"binary"), True),
        (_suspect("usr/share/keyrings/x.key", b"public"), False),
        (_suspect(f"{SITE}/tornado/test.key", b"-----BEGIN PRIVATE KEY-----", recorded=True), False),
        (_suspect("root/.netrc", b"machine"), True),
        (_suspect("root/.netrc", b""), False),
        (_suspect("root/.config/pip/pip.conf", b"index-url = https://u:p@host/"), True),
        (_suspect("etc/pip.conf", b"index-url = https://host/"), False),
        (_suspect("usr/share/perl/Netrc.pm", b"package"), False),
    ],
)
def test_which_files_are_secrets(gpu: tuple[RoleImage, Any, Context], told: Fields, *, secret: bool) -> None:
    listing = Listing(items=(told,), folders={})
    found = _of(gpu, _facts(gpu[0], listings={1: listing}))["secrets"]
    assert (found.status is Status.MISMATCH) == secret
    allowed = replace(gpu[1], allow_secrets=("key", "server.key"))
    again = {one.check: one for one in check(gpu[0], _facts(gpu[0], listings={1: listing}), allowed, gpu[2])}["secrets"]
    assert (again.status is Status.MISMATCH) == (secret and not told["path"].startswith("app/"))


def _layered(image: RoleImage, *listings: Listing | None) -> Facts:
    """Facts of an image whose first layer is the base's; None for a layer that nobody read."""
    layers = tuple(Layer(digest=f"sha256:{n}", size=1, own=n > 0, history="") for n in range(len(listings)))
    return _facts(image, layers=layers, listings={n: one for n, one in enumerate(listings) if one is not None})


def test_a_secret_that_a_layer_removes_is_reported_where_it_is(gpu: tuple[RoleImage, Any, Context]) -> None:
    """And at its removal where nobody knows whether a layer below has it."""
    base, empty = Listing(items=tuple(GOOD_ITEMS), folders={}), Listing(items=(), folders={})
    having = replace(empty, items=(_suspect("root/.netrc", b"machine"),))
    removing = replace(empty, removed=("root/.netrc", "root/notes"))

    def said(*listings: Listing | None) -> str:
        return _of(gpu, _layered(gpu[0], *listings))["secrets"].found

    assert said(base, having, removing) == "/root/.netrc in layer 2"
    assert said(base, None, removing) == "/root/.netrc, which layer 3 removes: the layers below still have it"
    assert said(having, None, removing) == said(base, empty, removing) == "no file that looks like a secret"
    assert said(base, removing, having) == "/root/.netrc in layer 3"


def test_a_secret_of_the_base_is_no_fault_of_the_image(gpu: tuple[RoleImage, Any, Context]) -> None:
    """What a container shows has no layer; where it has one, the base's own does not count."""
    suspect = _suspect("root/.netrc", b"machine")
    for layer, secret in ((0, False), (1, True), (None, True)):
        facts = _facts(gpu[0], items=[*GOOD_ITEMS, {**suspect, "layer": layer}])
        assert (_of(gpu, facts)["secrets"].status is Status.MISMATCH) is secret


def test_caches_of_the_images_own_layers_are_a_warning(gpu: tuple[RoleImage, Any, Context]) -> None:
    paths = ("root/.cache/pip/http/1", "root/.cache/pip/http/2", "var/cache/apt/archives/a.deb")
    cached = Listing(items=tuple(_files("cache", *paths, size=600_000)), folders={})
    empty = Listing(items=(), folders={})
    found = _of(gpu, _layered(gpu[0], empty, cached))["caches"]
    assert (found.status, found.found) == (Status.WARNING, "/root/.cache/pip 1.2 MB, /var/cache/apt 0.6 MB")
    telling = replace(empty, items=tuple(_files("library", "usr/lib/libcudnn.so.8")))
    assert _of(gpu, _layered(gpu[0], cached, telling))["caches"].status is Status.OK


def test_a_program_that_ended_before_it_computed(gpu: tuple[RoleImage, Any, Context]) -> None:
    parts = {name: one for name, one in RAN.items() if name != "compute"} | {"end": {"late": False, "signal": 11}}
    found = _of(gpu, _facts(gpu[0], run=Started(parts=parts)))["compute"]
    assert found.status is Status.MISMATCH
    assert "killed by signal 11" in found.found
    failed = {**parts, "tensorflow": {"error": "ImportError", "message": "libx"}}
    for run in (Started(parts=failed), Started(parts={"end": parts["end"]}), Started(fault="no such file")):
        assert "compute" not in _of(gpu, _facts(gpu[0], run=run))


def test_what_is_found_goes_to_a_terminal_as_one_plain_line(gpu: tuple[RoleImage, Any, Context]) -> None:
    ran = {"tensorflow": {"error": "ImportError", "message": "\x1b[2Jgone\nError: all is well \u202e" + "x" * 999}}
    found = _of(gpu, _facts(gpu[0], ran=ran))["tensorflow"].found
    assert "\x1b" not in found
    assert "\n" not in found
    assert "\u202e" not in found
    assert len(found) < 400


def test_the_base_is_known_by_its_layers(gpu: tuple[RoleImage, Any, Context], tmp_path: Path) -> None:
    del tmp_path
    other = {**BASE, "rootfs": {"diff_ids": ["sha256:other"]}}
    found = _of(gpu, _facts(gpu[0], base_config=other))
    assert "base" in _wrong(found)
    assert _of(gpu, _facts(gpu[0], base_config=None))["base"].status is Status.UNSEEN


def test_settings_follow_from_every_stage_and_the_base() -> None:
    text = f'FROM python@sha256:{"a" * 64} AS system\nENV A=1\nFROM system AS worker\nENV B=$A\nENTRYPOINT ["run"]\n'
    planned = plan_settings(parse(text), {"Env": ["PATH=/bin"], "Cmd": ["python3"]})
    assert planned is not None
    assert planned["Env"] == ["PATH=/bin", "A=1", "B=1"]
    assert (planned["Entrypoint"], planned.get("Cmd")) == (["run"], None)
    own = plan_settings(parse(text.replace("ENV B", 'CMD ["x"]\nENV B')), {"Cmd": ["python3"]})
    assert own is not None
    assert own["Cmd"] == ["x"]
    assert plan_settings(parse(text), {"OnBuild": ["RUN x"]}) is None
    assert plan_settings(parse(text), None) is None
