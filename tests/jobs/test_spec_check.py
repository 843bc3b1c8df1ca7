"""`job` is checked before anything is built: what its target refuses, `show`, `lock`, `build` and `doctor` refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project
from training_imgtool.base.errors import FieldListError
from training_imgtool.jobs import check_job
from training_imgtool.model.load import load

JOB = "job:\n  target: ai-platform\n  region: us-central1\n"
VERTEX_WITHOUT_REGION = "job:\n  target: vertex\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.env["IMGTOOL_REGISTRY"] = "127.0.0.1:9/x"
    return made


@pytest.mark.parametrize("verb", ["show", "lock --locked", "build --push", "push", "build --push --dry-run"])
def test_each_verb_refuses_an_invalid_job(project: Project, verb: str) -> None:
    project.spec(SPEC.replace(JOB, VERTEX_WITHOUT_REGION))
    project.refused(*verb.split(), code=3, says=["image.yaml:8:1: job.region: is missing"])


def test_doctor_ends_with_the_code_of_the_build(project: Project) -> None:
    project.spec(SPEC.replace(JOB, VERTEX_WITHOUT_REGION))
    ended = project.run("doctor")
    assert (ended.code, "missing job: " in ended.out) == (3, True)


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (("trainer/task.py", "import pandas\n"), 3, "missing images: trainer/task.py:1:1: no locked wheel"),
        (("trainer/task.py", "def f(:\n"), 3, "missing images: trainer/task.py:1:7: Python 3.11 cannot parse it"),
        (("trainer/task.py", "import numpy\n"), 0, "ok      images: the trainer can start"),
    ],
)
def test_doctor_checks_the_trainer(project: Project, change: tuple[str, str], code: int, says: str) -> None:
    del project.env["IMGTOOL_REGISTRY"]
    project.write(*change)
    ended = project.run("doctor")
    assert (ended.code, says in ended.out) == (code, True), ended.out


def test_doctor_reads_the_requirements_of_a_stale_lock(project: Project) -> None:
    del project.env["IMGTOOL_REGISTRY"]
    project.write("requirements.txt", "[project]\n")
    project.write("image.yaml", SPEC + "requirements: requirements.txt\n")
    ended = project.run("doctor")
    assert (ended.code, "missing lock: " in ended.out) == (3, True), ended.out


@pytest.mark.parametrize(
    "job",
    [
        "",
        "job: {}\n",
        "job: {target: tf-config}\n",
        "job: {target: tfjob}\n",
        "job: {volumes: [{claim: data, mount: /data}]}\n",  # `config --target` may name any target
        "job: {id: 'no good name'}\n",
    ],
)
def test_what_some_target_takes_is_fine(job: str, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("")
    (tmp_path / "image.yaml").write_text(
        SPEC.replace(JOB, job).replace("source: trainer, module: trainer.task", "source: task.py")
    )
    check_job(load(tmp_path / "image.yaml"))


@pytest.mark.parametrize("verb", ["config", "config --push", "config --command"])
def test_config_without_a_target_lists_them(project: Project, verb: str) -> None:
    project.spec(SPEC.replace(JOB, "job: {region: us-central1}\n"))
    said = ["names no job.target", "ai-platform, vertex, tfjob", "slurm"]
    project.refused(*verb.split(), code=2, says=said)


def test_a_region_that_the_tables_lack_names_the_option_of_these_verbs(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("")
    job = "job: {target: vertex, region: mars-north7}\n"
    (tmp_path / "image.yaml").write_text(
        SPEC.replace(JOB, job).replace("source: trainer, module: trainer.task", "source: task.py")
    )
    with pytest.raises(FieldListError) as caught:
        check_job(load(tmp_path / "image.yaml"))
    assert [error.hint for error in caught.value.errors if error.field == "job.region"] == [
        "--no-check skips this check; later, config takes --allow-unknown"
    ]
