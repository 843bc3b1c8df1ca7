"""Trainers as people write them: whichever loses its model, `imgtool run` does not call it a plain success."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.project import SERVE, Project, unique
from tests.engines.support import shared_engine

pytestmark = pytest.mark.engine
SAVED = "saved_model.pb variables/variables.index variables/variables.data-00000-of-00001 fingerprint.pb"

# What each writes, as TensorFlow 2.15 does; how the run ends; what is named as gone.
FILES = {
    "the starter": ({"/job/model": SAVED}, "succeeded", ""),
    "model.save to a relative path": ({"/app": "model.keras"}, "succeeded, its model lost", "/app/model.keras"),
    "TensorBoard kept, model lost": (
        {"/job/logs/train": "events.out.tfevents.1.h.1.0.v2", "/app/history": "a.csv b.csv c.csv", "/app/my": SAVED},
        "succeeded, its model lost",
        "/app/my/saved_model.pb",
    ),
    "ModelCheckpoint to /tmp": (
        {"/tmp/ckpt": "checkpoint cp-1.ckpt.index cp-1.ckpt.data-00000-of-00001"},
        "succeeded, its model lost",
        "/tmp/ckpt/checkpoint",
    ),
    "an Estimator's own folder": (
        {"/tmp/tmp8x1": "checkpoint graph.pbtxt model.ckpt-9.index model.ckpt-9.meta"},
        "succeeded, its model lost",
        "/tmp/tmp8x1/checkpoint",
    ),
    "CheckpointManager in the home": (
        {"/home/me/ckpt": "checkpoint ckpt-1.index"},
        "succeeded, its model lost",
        "/home/me/ckpt/checkpoint",
    ),
    "a hidden folder": ({"/app/.best": "weights.h5"}, "succeeded, its model lost", "/app/.best/weights.h5"),
    "by hand": ({"/app": "weights.npz weights.pkl"}, "succeeded, without a result", "/app/weights.npz"),
    "only TensorBoard": ({"/job/logs": "events.out.tfevents.1.h.1.0.v2 h.csv"}, "succeeded, without a model", ""),
    "an absolute path, with its data": (
        {"/job": "metrics.json", "/data/in": "a.jpg b.jpg", "/data/out": "net.h5"},
        "succeeded, its model lost",
        "/data/out/net.h5",
    ),
    "its error caught": ({}, "succeeded, without a result", ""),
    "downloads beside a kept model": (
        {"/job": "model.keras", "/home/me/.keras/models": "vgg16.h5", "/tmp/tfhub_modules/1": SAVED},
        "succeeded",
        "",
    ),
}
QUICK = {"TensorBoard kept, model lost", "an Estimator's own folder"}


def _script(number: int, files: dict[str, str]) -> str:
    made = (
        f"mkdir -p {Path(folder, name).parent}; echo x > {folder}/{name}"
        for folder, names in files.items()
        for name in names.split()
    )
    return f"{number}) {'; '.join(('true', *made))} ;;\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("trainers")
    script = "".join(_script(number, files) for number, (files, _, _) in enumerate(FILES.values()))
    with shared_engine(tmp_path_factory.mktemp("home")) as engine:
        made = Project(
            root, engine, {"master": f'case "$1" in\n{script}esac\n', "worker": SERVE}, volume="/v", name=unique(root)
        )
        yield made
        left = made.left()
        made.remove()
        assert not left


@pytest.mark.long
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k in QUICK else pytest.mark.long) for k in FILES])
def test_what_becomes_of_the_files(project: Project, kind: str) -> None:
    _, end, gone = FILES[kind]
    shutil.rmtree(project.job, ignore_errors=True)
    said = project.run("--workers", "0", "--progress", "quiet", "--", str(list(FILES).index(kind))).stdout
    assert said.startswith(f"{project.spec['name']} as ai-platform: {end}, ")
    assert (f"gone with master's container: {gone}" in said) is bool(gone)


def test_a_volume_of_the_image_is_said(project: Project) -> None:
    done = project.run("--workers", "0", "--json", "--", "none")
    assert "master: /v: a volume of the image; what is in it is not listed, and gone" in done.stderr
