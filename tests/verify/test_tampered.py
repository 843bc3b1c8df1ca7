"""One image per way to tamper with it, read without an engine: each is a mismatch, and sound images have none."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.verify import images
from tests.verify.images import Change, Raw
from tests.verify.tampering import (
    ADDED,
    APP,
    BYTECODE,
    CODE,
    FORGED,
    MODES,
    OTHERS,
    SITE,
    SOUND,
    VENV,
    Files,
    change_env,
)
from training_imgtool.core.settings import from_environment
from training_imgtool.direct.tree import Attributes
from training_imgtool.dockerfile.parse import parse
from training_imgtool.pipeline.inputs import Inputs
from training_imgtool.registry.manifests import sha256_digest
from training_imgtool.spec.model import Ignore, Role
from training_imgtool.verify.checks import check
from training_imgtool.verify.checks.settings import plan_settings
from training_imgtool.verify.compare import Comparison
from training_imgtool.verify.expected_files import CopiedFiles
from training_imgtool.verify.facts import Expected, Facts, Finding, Status, Tree
from training_imgtool.verify.facts import Layer as LayerFacts
from training_imgtool.verify.layers import overlay, read_layer

BASE: images.Layer = {"usr/local/bin/python3.11": b"\x7fELF", "etc/os-release": b"ID=debian\n"}


@dataclass(frozen=True)
class Toy:
    """A spec's inputs, and the archives of its good image above the base."""

    folder: Path
    inputs: Inputs
    archives: tuple[bytes, ...]

    def findings(
        self,
        *more: Files | bytes,
        change: Change | None = None,
        ignore: tuple[Ignore, ...] = (),
        made: str | None = "whole",
        below: Files | None = None,
        run: bool = False,
    ) -> tuple[Finding, ...]:
        """The findings about the good image with further layers, and with `change` made to its config.

        With `run`, only an engine can make a stage, whose layer is `below`; with `made` None, this machine makes none.
        """
        image = self.inputs.images[0]
        above = [data if isinstance(data, bytes) else images.tar(data) for data in more]
        engine = [images.tar(below)] if below else []
        archives = [images.tar(BASE), *engine, *self.archives, *above]
        diff_ids = [sha256_digest(data) for data in archives]
        base = {"os": "linux", "architecture": "amd64", "config": {"Env": ["PATH=/usr/local/bin:/usr/bin"]}}
        base["rootfs"] = {"diff_ids": diff_ids[:1]}
        config: dict[str, Any] = json.loads(json.dumps({**base, "rootfs": {"diff_ids": diff_ids}}))
        config["config"] = plan_settings(image.dockerfile, base["config"])  # type: ignore[arg-type]
        if change:
            change(config)
        histories = [line["created_by"] for line in config.get("history", ())] or ["COPY"] * len(archives)
        read = {
            number: read_layer(iter((data,)), hashed=number > 0, most=10 << 20) for number, data in enumerate(archives)
        }
        whole = {number: listing for number, listing in read.items() if listing.diff_id}
        first = 1 + len(engine)
        good = {number: read[number + first] for number in range(len(self.archives))}
        nodes = overlay(good, len(good)).nodes
        expected = Expected(nodes=nodes, whole=True)
        if run:
            venv = {path: node for path, node in nodes.items() if path.startswith("opt/venv")}
            expected = Expected(nodes=venv, whole=False, why="RUN make")
            text = re.sub(r"(FROM \S+ AS system\n)", r"\1RUN make\n", image.text, count=1)
            image = replace(image, dockerfile=parse(text, file="Dockerfile"))
        facts = Facts(
            image="toy",
            config=config,
            layers=tuple(
                LayerFacts(digest=digest, size=1, own=number > 0, history=history)
                for number, (digest, history) in enumerate(zip(diff_ids, histories, strict=True))
            ),
            listings=whole,
            damaged={number: listing for number, listing in read.items() if number not in whole},
            tree=overlay(whole, len(archives)),
            expected=expected if made else None,
            base_config=base,
        )
        spec = self.inputs.spec_file.spec
        return check(image, facts, replace(spec, verify=replace(spec.verify, ignore=ignore)), self.inputs.context)


def _wrong(findings: tuple[Finding, ...]) -> dict[str, str]:
    return {finding.check: finding.found for finding in findings if finding.status is Status.MISMATCH}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    root = tmp_path_factory.mktemp("tampered")
    named = (("numpy", "1.26.4"), ("six", "1.16.0"), ("tensorflow-cpu", "2.15.1"))
    locked = plans.locked(wheels=tuple(plans.wheel(*one) for one in named), roles=(Role.MASTER,))
    folder = images.write_spec(root / "spec", locked)
    inputs = images.inputs_of(folder, from_environment({"HOME": str(root), "IMGTOOL_REGISTRY": "127.0.0.1:9/x"}))
    return Toy(folder, inputs, tuple(map(images.tar, images.good_layers(inputs.images[0], folder))))


@pytest.mark.parametrize("name", CODE)
def test_changed_code_is_a_mismatch_of_the_trainer(toy: Toy, name: str) -> None:
    files, says = CODE[name]
    wrong = _wrong(toy.findings(files))
    assert says in wrong["trainer"]
    assert wrong.keys() <= {"trainer", "base"}  # some bring a file from elsewhere


@pytest.mark.parametrize("name", VENV)
def test_a_changed_environment_is_a_mismatch_of_the_wheels(toy: Toy, name: str) -> None:
    files, says = VENV[name]
    wrong = _wrong(toy.findings(files))
    assert says in wrong["wheels"]
    if not name.startswith(("site", "tensorflow-metadata")):
        assert wrong.keys() == {"wheels"}


@pytest.mark.parametrize("name", BYTECODE)
def test_bytecode_of_other_code_is_not_proven(toy: Toy, name: str) -> None:
    files, says = BYTECODE[name]
    findings = toy.findings(files)
    assert _wrong(findings) == {}
    (unproven,) = (finding for finding in findings if finding.status is Status.UNPROVEN)
    assert unproven.check == "bytecode"
    assert says in unproven.found


@pytest.mark.parametrize("name", ADDED)
def test_what_no_instruction_puts_there_is_a_mismatch_of_the_base(toy: Toy, name: str) -> None:
    assert _wrong(toy.findings(ADDED[name])).keys() == {"base"}


@pytest.mark.parametrize("name", MODES)
def test_modes_owners_and_kinds_count(toy: Toy, name: str) -> None:
    files, check_name = MODES[name]
    assert _wrong(toy.findings(files)).keys() == {check_name}


@pytest.mark.parametrize("name", FORGED)
def test_the_record_of_an_image_is_no_evidence(toy: Toy, name: str) -> None:
    wrong = _wrong(toy.findings(FORGED[name]))
    assert wrong.keys() == {"wheels"}
    assert "RECORD differs from its wheel" in wrong["wheels"]


def test_an_image_that_this_machine_cannot_make_is_not_proven(toy: Toy) -> None:
    findings = toy.findings(made=None)
    assert _wrong(findings) == {}
    (unproven,) = (finding for finding in findings if finding.status is Status.UNPROVEN)
    assert (unproven.check, unproven.found) == ("wheels", "/opt/venv")
    assert _wrong(toy.findings(CODE["other-code"][0], made=None)).keys() == {"trainer"}
    assert _wrong(toy.findings(ADDED["sbin"], made=None)).keys() == {"base"}


def test_what_a_run_may_have_made_is_named_and_all_else_compared(toy: Toy) -> None:
    """Where only an engine can make the stage below, what lies in its layers counts as its own, and nothing above."""
    below = {"usr/lib/libgomp.so.1": b"\x7fELF"}
    findings = toy.findings(below=below, run=True)
    assert _wrong(findings) == {}
    assert "1 files of RUN, which only an engine can make: RUN make" in next(
        one.found for one in findings if one.check == "base"
    )
    for files, check_name in ((ADDED["sbin"], "base"), (VENV["pth"][0], "wheels"), (CODE["other-code"][0], "trainer")):
        assert _wrong(toy.findings(files, below=below, run=True)).keys() == {check_name}


@pytest.mark.parametrize("name", OTHERS)
def test_other_tampering_is_a_mismatch_of_its_check(toy: Toy, name: str) -> None:
    layers, change, check_name, says = OTHERS[name]
    wrong = _wrong(toy.findings(*layers, change=change))
    assert says in wrong[check_name]
    assert "hunter2" not in str(wrong)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_image_has_no_mismatch(toy: Toy, name: str) -> None:
    findings = toy.findings(SOUND[name])
    assert _wrong(findings) == {}
    trainer = next(finding for finding in findings if finding.check == "trainer")
    assert trainer.status is Status.OK


@pytest.mark.parametrize(
    ("pythonpath", "helpers", "says"),
    [
        ("/app/lib", b"import numpy\n", None),
        ("/app/lib", b"import absent\n", "no module absent in the image (/app/lib/helpers.py:1)"),
        ("/app", b"", "no module helpers in the image (/app/trainer/task.py:1)"),
        ("/app:/data", b"", None),
    ],
)
def test_modules_are_searched_where_pythonpath_says(
    toy: Toy, pythonpath: str, helpers: bytes, says: str | None
) -> None:
    layer = {f"{APP}/task.py": b"import helpers\n", "app/lib/helpers.py": helpers}
    findings = toy.findings(layer, change=change_env(lambda env: [*env, f"PYTHONPATH={pythonpath}"]))
    complaints = next(" ".join(finding.complaints) for finding in findings if finding.check == "trainer")
    assert ("does not import" in complaints) is (says is not None)
    assert (says or "") in complaints


@pytest.mark.parametrize(("pythonpath", "known"), [("/app/lib", True), ("/data", False)])
def test_a_trainer_that_may_lie_elsewhere_is_not_called_missing(toy: Toy, pythonpath: str, *, known: bool) -> None:
    findings = toy.findings({APP: None}, change=change_env(lambda env: [*env, f"PYTHONPATH={pythonpath}"]))
    complaints = next(finding.complaints for finding in findings if finding.check == "trainer")
    assert ("/app has no trainer/task.py" in complaints) is known


def test_what_the_spec_ignores_is_a_warning_with_its_reason(toy: Toy) -> None:
    files = {f"{SITE}/vendor.pth": b"", f"{SITE}/evil.pth": b""}
    named = Ignore(check="wheels", match="vendor.pth", reason="the driver's")
    assert _wrong(toy.findings(files, ignore=(named,))) == {"wheels": f"/{SITE}/evil.pth belongs to no wheel"}
    both = (named, Ignore(check="wheels", match="evil.pth", reason="known"))
    finding = next(one for one in toy.findings(files, ignore=both) if one.check == "wheels")
    assert (finding.status, finding.expected) == (Status.WARNING, "ignored: the driver's; known")
    whole = Ignore(check="wheels", reason="everything")
    assert _wrong(toy.findings(files, ignore=(whole,))) == {}


def test_every_check_can_be_ignored_by_name(toy: Toy) -> None:
    from training_imgtool.spec.model import CHECKS

    assert {finding.check for finding in toy.findings()} <= set(CHECKS)


@pytest.mark.parametrize(("mode", "wrong"), [(0o1777, False), (0o777, True), (0o755, True)])
def test_a_folder_that_only_leads_to_files_is_as_in_the_base(mode: int, *, wrong: bool) -> None:
    """BuildKit lists the folders on the way with the modes that they have."""
    image = overlay({0: read_layer(iter((images.tar({"tmp": Raw(b"", mode, kind=b"5"), "tmp/a": b""}),)), hashed=True,
                                   most=1 << 20)}, 1)  # fmt: skip
    made = overlay({0: read_layer(iter((images.tar({"tmp/a": b""}),)), hashed=True, most=1 << 20)}, 1)
    copied = CopiedFiles(files={}, folders=(), unclear=(), runs=False, any_run=False)
    base = {"tmp": Attributes(0o1777)}
    compared = Comparison(tree=image, made=Expected(nodes=made.nodes, whole=True), copied=copied, base=base)
    assert bool(compared.complaints["base"]) is wrong


@pytest.mark.parametrize(("path", "wrong"), [("srv/a", False), ("srv", False), ("srvs", True), ("s/srv", True)])
def test_what_another_stage_gives_may_lie_below_its_destination(path: str, *, wrong: bool) -> None:
    image = overlay({0: read_layer(iter((images.tar({path: b"1"}),)), hashed=True, most=1 << 20)}, 1)
    copied = CopiedFiles(files={}, folders=(), unclear=("srv",), runs=False, any_run=False)
    said = Comparison(tree=image, made=None, copied=copied).complaints["base"]
    assert [text for text in said if text.startswith(f"/{path} ")] == (
        [f"/{path} of layer 1 is put there by no instruction"] if wrong else []
    )


def test_what_the_images_own_layers_remove_of_the_base() -> None:
    """As a stage does that empties apt's lists: the removal is part of what the image must be."""
    layers = [images.tar(BASE), images.tar({"usr/share/doc/.wh.note": b"", "app/a.py": b"1\n"})]
    image = overlay({1: read_layer(iter((layers[1],)), hashed=True, most=1 << 20)}, 1)
    whole = overlay({1: read_layer(iter((images.tar({"app/a.py": b"1\n"}),)), hashed=True, most=1 << 20)}, 1)
    copied = CopiedFiles(files={}, folders=(), unclear=(), runs=False, any_run=False)

    def complaints(tree: Tree, wanted: Tree) -> tuple[str, ...]:
        made = Expected(nodes=wanted.nodes, whole=True, removed=frozenset(wanted.removed))
        return Comparison(tree=tree, made=made, copied=copied).complaints["base"]

    assert not complaints(image, image)
    assert complaints(image, whole) == ("/usr/share/doc/note is removed by layer 2",)
    assert complaints(whole, image)[-1] == "/usr/share/doc/note of the base is still there"


def test_the_bytecode_of_the_environment_is_counted() -> None:
    files = ("opt/venv/lib/a.pyc", "opt/venv/lib/__pycache__/b.cpython-311.pyc", "opt/venv/c.py", "usr/d.pyc")
    data = images.tar(dict.fromkeys(files, b"1"))
    tree = overlay({0: read_layer(iter((data,)), hashed=True, most=1 << 20)}, 1)
    copied = CopiedFiles(files={}, folders=(), unclear=(), runs=False, any_run=False)
    assert Comparison(tree=tree, made=None, copied=copied).bytecode == 2
