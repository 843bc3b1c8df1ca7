"""One image per way to tamper with it, read without an engine: each is a mismatch, and sound images have none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.verify import images
from tests.verify.images import Change, Link
from training_imgtool.build.inputs import Inputs
from training_imgtool.core.settings import from_environment
from training_imgtool.registry.manifests import sha256_digest
from training_imgtool.spec.model import Ignore, Role
from training_imgtool.verify.checks import check
from training_imgtool.verify.checks.settings import expected_settings
from training_imgtool.verify.facts import Facts, Finding, Status
from training_imgtool.verify.facts import Layer as LayerFacts
from training_imgtool.verify.layers import overlaid, read_layer

SITE = "opt/venv/lib/python3.11/site-packages"
APP = "app/trainer"
KEY = b"-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----\n"
BASE: images.Layer = {"usr/local/bin/python3.11": b"\x7fELF", "etc/os-release": b"ID=debian\n"}
Files = Mapping[str, bytes | Link | None]


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
        config["config"] = expected_settings(image.dockerfile, base["config"])  # type: ignore[arg-type]
        if change:
            change(config)
        histories = [line["created_by"] for line in config.get("history", ())] or ["COPY"] * len(archives)
        read = {
            number: read_layer(iter((data,)), hashed=number > 0, most=10 << 20) for number, data in enumerate(archives)
        }
        whole = {number: listing for number, listing in read.items() if listing.diff_id}
        facts = Facts(
            image="toy",
            config=config,
            layers=tuple(
                LayerFacts(digest=digest, size=1, own=number > 0, history=history)
                for number, (digest, history) in enumerate(zip(diff_ids, histories, strict=True))
            ),
            listings=whole,
            damaged={number: listing for number, listing in read.items() if number not in whole},
            tree=overlaid(whole, len(archives)),
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


def _settings(**values: Any) -> Change:
    return lambda config: config["config"].update(values)


def _config(**values: Any) -> Change:
    return lambda config: config.update(values)


def _env(edit: Callable[[list[str]], list[str]]) -> Change:
    return lambda config: config["config"].update(Env=edit(config["config"]["Env"]))


def _diff_id(number: int) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["rootfs"]["diff_ids"][number] = "sha256:" + "0" * 64

    return change


def _history(text: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["history"] = [{"created_by": text}] * 3

    return change


CODE: dict[str, tuple[Files, str]] = {
    "other-code": ({f"{APP}/task.py": b"import numpy\n"}, f"/{APP}/task.py differs from the context"),
    "other-module": ({f"{APP}/model.py": b"layers = 3\n"}, f"/{APP}/model.py differs from the context"),
    "extra-module": ({f"{APP}/evil.py": b""}, f"/{APP}/evil.py is not in the context"),
    "beside": ({"app/numpy.py": b""}, "/app/numpy.py is not in the context"),
    "hard-link": (
        {"tmp/other.py": b"import numpy\n", f"{APP}/task.py": Link("tmp/other.py", hard=True)},
        f"/{APP}/task.py differs from the context",
    ),
    "symlink": ({"tmp/o.py": b"", f"{APP}/task.py": Link("/tmp/o.py")}, f"/{APP}/task.py is a link to /tmp/o.py"),
    "gone": ({f"{APP}/model.py": None}, f"/{APP}/model.py is missing"),
    "opaque-app": ({"app/.wh..wh..opq": b""}, f"/{APP}/__init__.py is missing"),
    "app-link": ({"app": Link("/nonexistent")}, f"/{APP}/task.py is missing"),
}
VENV: dict[str, tuple[Files, str]] = {
    "tensorflow-code": (
        {f"{SITE}/tensorflow/__init__.py": images.TENSORFLOW.encode() + b"evil = 1\n"},
        f"/{SITE}/tensorflow/__init__.py differs from its RECORD",
    ),
    "file-gone": ({f"{SITE}/six/__init__.py": None}, f"/{SITE}/six/__init__.py is in a RECORD and missing"),
    "package-gone": ({f"{SITE}/six": None}, f"/{SITE}/six/__init__.py is in a RECORD and missing"),
    "pth": ({f"{SITE}/evil.pth": b"import evil\n"}, f"/{SITE}/evil.pth belongs to no package"),
    "sitecustomize": ({f"{SITE}/sitecustomize.py": b""}, f"/{SITE}/sitecustomize.py belongs to no package"),
    "extra-script": ({"opt/venv/bin/evil": b"#!/bin/sh\n"}, "/opt/venv/bin/evil belongs to no package"),
    "bytecode-alone": (
        {f"{SITE}/six/__pycache__/evil.cpython-311.pyc": b"x"},
        f"/{SITE}/six/__pycache__/evil.cpython-311.pyc belongs to no package",
    ),
    "metadata-gone": ({f"{SITE}/six-1.16.0.dist-info": None}, "six 1.16.0 is missing"),
    "extra-package": (images.package(SITE, "pandas", "2.2.0", {}), "pandas 2.2.0 is not in the lock"),
    "site-link": ({SITE: Link("/nonexistent")}, "numpy 1.26.4 is missing"),
    "site-file": ({SITE: b""}, "numpy 1.26.4 is missing"),
    "site-opaque": ({f"{SITE}/.wh..wh..opq": b""}, "numpy 1.26.4 is missing"),
    "tensorflow-metadata": ({f"{SITE}/tensorflow_cpu-2.15.1.dist-info": None}, "belongs to no package"),
}


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


def _six(requires: str) -> tuple[images.Layer]:
    return (images.package(SITE, "six", "1.16.0", {"six/__init__.py": b""}, (requires,)),)


OTHERS: dict[str, tuple[tuple[Files | bytes, ...], Change | None, str, str]] = {
    "python": (({"opt/venv/bin/python": Link("/usr/bin/python3.12")},), None, "python", "python3.12"),
    "pip-check": (
        (images.package(SITE, "six", "1.16.0", {"six/__init__.py": b""}, ("absent>=1",)),),
        None,
        "pip check",
        "requires absent",
    ),
    "conflict": (
        (images.package(SITE, "six", "1.16.0", {"six/__init__.py": b""}, ("numpy<1",)),),
        None,
        "pip check",
        "numpy<1, but 1.26.4",
    ),
    "syntax": (({f"{APP}/task.py": b"def train(:\n"},), None, "trainer", f"/{APP}/task.py:1"),
    "inner-import": (({f"{APP}/model.py": b"import absl\n"},), None, "trainer", "no module absl"),
    "netrc": (({"root/.netrc": b"machine x login y password z\n"},), None, "secrets", "/root/.netrc"),
    "history": ((), _history("RUN curl -H 'password: hunter2hunter2' x"), "settings", "history: RUN holds"),
    "secret-whiteout": (({"app/.npmrc": b"x=y"}, {"app/.npmrc": None}), None, "secrets", "/app/.npmrc"),
    "secret-opaque": (({"data/.netrc": b"x"}, {"data/.wh..wh..opq": b""}), None, "secrets", "/data/.netrc"),
    "secret-content": (({"srv/account": KEY},), None, "secrets", "/srv/account in layer 4"),
    "twice": (({"srv/a": b"", "srv//a": b""},), None, "layers", "/srv/a is in it twice"),
    "hard-out": (({"srv/l": Link("../../etc/passwd", hard=True)},), None, "layers", "hard link to ../../etc/passwd"),
    "hard-none": (({"srv/l": Link("/etc/shadow", hard=True)},), None, "layers", "hard link to /etc/shadow"),
    "garbage": ((b"no archive" * 200,), None, "layers", "layer 4 "),
    "bomb": (({"srv/zeros": bytes(11 << 20)},), None, "layers", "it inflates to more than 10 MB"),
    "diff-id": ((), _diff_id(2), "layers", "and the config says sha256:000000000000"),
    "base": ((), _diff_id(0), "base", "0 of the base's 1 layers"),
    "arm64": ((), _config(architecture="arm64"), "platform", "linux/arm64"),
    "windows": ((), _config(os="windows"), "platform", "windows/amd64"),
    "entry-point": ((), _settings(Entrypoint=["/bin/sh"]), "entry point", "/bin/sh"),
    "cmd": ((), _settings(Cmd=["--evil"]), "entry point", "--evil"),
    "user": ((), _settings(User="1000"), "user", "1000"),
    "working-folder": ((), _settings(WorkingDir="/tmp"), "environment", "the working folder is /tmp, not /app"),
    "env-gone": ((), _env(lambda env: env[:-1]), "environment", " is missing"),
    "env-other": ((), _env(lambda env: [*env, "TF_CPP_MIN_LOG_LEVEL=0"]), "environment", "has another value"),
    "pythonpath": ((), _env(lambda env: [*env, "PYTHONPATH=/evil"]), "environment", "PYTHONPATH was not planned"),
    "env-secret": ((), _env(lambda env: [*env, "DB_PASSWORD=hunter2hunter2"]), "settings", "DB_PASSWORD in the env"),
    "label": ((), _settings(Labels={}), "image", "made from no key"),
    "key": ((), _settings(Labels={"dev.imgtool.key": "0" * 64}), "image", "made from 000000000000"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_tampering_is_a_mismatch_of_its_check(toy: Toy, name: str) -> None:
    layers, change, check_name, says = OTHERS[name]
    wrong = _wrong(toy.findings(*layers, change=change))
    assert says in wrong[check_name]
    assert "hunter2" not in str(wrong)


SOUND: dict[str, Files] = {
    "as-built": {},
    "bytecode": {f"{SITE}/six/__pycache__/__init__.cpython-311.pyc": b"x"},
    "optimized-bytecode": {f"{SITE}/six/__pycache__/__init__.cpython-311.opt-1.pyc": b"x"},
    "interpreter-names": {"opt/venv/bin/python3": Link("python"), "opt/venv/bin/python3.11": Link("python")},
    "lib64": {"opt/venv/lib64": Link("lib")},
    "same-code-again": {f"{APP}/model.py": b"layers = 2\n"},
    "same-code-as-a-hard-link": {"srv/model.py": b"layers = 2\n", f"{APP}/model.py": Link("srv/model.py", hard=True)},
    "debian": {"var/lib/dpkg/status": b"Package: libc6\n", "usr/lib/libgomp.so.1": b"\x7fELF"},
    "a-folder-beside": {"data/mnist.npz": b"x" * 10},
    "dots-in-names": {"srv/../srv/a": b"", "/srv/b": b""},
}


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
    findings = toy.findings(layer, change=_env(lambda env: [*env, f"PYTHONPATH={pythonpath}"]))
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
