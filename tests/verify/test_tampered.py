"""One image per way to tamper with it, read without an engine: each is a mismatch, and sound images have none."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.verify import images
from tests.verify.images import Change
from tests.verify.tampering import APP, BYTECODE, CODE, OTHERS, SITE, SOUND, VENV, Files, change_env
from training_imgtool.core.settings import from_environment
from training_imgtool.pipeline.inputs import Inputs
from training_imgtool.registry.manifests import sha256_digest
from training_imgtool.spec.model import Ignore, Role
from training_imgtool.verify.checks import check
from training_imgtool.verify.checks.settings import plan_settings
from training_imgtool.verify.compare_bytecode import Contents
from training_imgtool.verify.facts import Facts, Finding, Status
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
        self, *more: Files | bytes, change: Change | None = None, ignore: tuple[Ignore, ...] = ()
    ) -> tuple[Finding, ...]:
        """The findings about the good image with further layers, and with `change` made to its config."""
        image = self.inputs.images[0]
        above = [data if isinstance(data, bytes) else images.tar(data) for data in more]
        archives = [images.tar(BASE), *self.archives, *above]
        diff_ids = [sha256_digest(data) for data in archives]
        base = {"os": "linux", "architecture": "amd64", "config": {"Env": ["PATH=/usr/local/bin:/usr/bin"]}}
        base["rootfs"] = {"diff_ids": diff_ids[:1]}
        config: dict[str, Any] = json.loads(json.dumps({**base, "rootfs": {"diff_ids": diff_ids}}))
        config["config"] = plan_settings(image.dockerfile, base["config"])  # type: ignore[arg-type]
        if change:
            change(config)
        histories = [line["created_by"] for line in config.get("history", ())] or ["COPY"] * len(archives)
        with Contents() as contents:
            read = {
                number: read_layer(iter((data,)), hashed=number > 0, most=10 << 20, contents=contents)
                for number, data in enumerate(archives)
            }
            whole = {number: listing for number, listing in read.items() if listing.diff_id}
            tree = overlay(whole, len(archives))
            bytecode = contents.compare(tree.files or {}, "3.11", os.environ)
        facts = Facts(
            image="toy",
            config=config,
            layers=tuple(
                LayerFacts(digest=digest, size=1, own=number > 0, history=history)
                for number, (digest, history) in enumerate(zip(diff_ids, histories, strict=True))
            ),
            listings=whole,
            damaged={number: listing for number, listing in read.items() if number not in whole},
            tree=tree,
            bytecode=bytecode,
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
    assert wrong.keys() == {"trainer"}


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


def test_what_the_spec_ignores_is_a_warning_with_its_reason(toy: Toy) -> None:
    files = {f"{SITE}/vendor.pth": b"", f"{SITE}/evil.pth": b""}
    named = Ignore(check="wheels", match="vendor.pth", reason="the driver's")
    assert _wrong(toy.findings(files, ignore=(named,))) == {"wheels": f"/{SITE}/evil.pth belongs to no package"}
    both = (named, Ignore(check="wheels", match="evil.pth", reason="known"))
    finding = next(one for one in toy.findings(files, ignore=both) if one.check == "wheels")
    assert (finding.status, finding.expected) == (Status.WARNING, "ignored: the driver's; known")
    whole = Ignore(check="wheels", reason="everything")
    assert _wrong(toy.findings(files, ignore=(whole,))) == {}


def test_every_check_can_be_ignored_by_name(toy: Toy) -> None:
    from training_imgtool.spec.model import CHECKS

    assert {finding.check for finding in toy.findings()} <= set(CHECKS)
