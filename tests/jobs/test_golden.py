"""Specs x targets: the text is the golden file's, the strict schema passes, readers agree."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML

from tests.jobs import kubeflow_models, schemas
from tests.jobs.specs import CASES, GOLDENS, Case, golden_name, images, pairs, text_of
from training_imgtool.jobs import Format, JobFile, job_data, module_of
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.jobs.text import dump
from training_imgtool.model.targets import Target

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "jobs"
PAIRS = [pytest.param(case, target, id=name) for name, case, target in pairs()]
YAML_PAIRS = [param for param in PAIRS if param.values[1] is not Target.SLURM]  # whose file is a script
TRAINJOBS = [pytest.param(case, id=case.name) for case in CASES if Target.TRAINJOB in case.targets]
WITH_SCHEMA = [param for param in YAML_PAIRS if param.values[1] is not Target.SKYPILOT]
JUDGED = [param for param in YAML_PAIRS if hasattr(module_of(Target(str(param.values[1]))), "judge")]


def made(case: Case, target: Target) -> JobFile:
    return job_data(case.spec, images(case.spec), target, case.job_options())


@pytest.mark.parametrize("name", GOLDENS)
def test_text_is_the_golden_file(name: str) -> None:
    assert text_of(name) == (GOLDEN / golden_name(name)).read_text(), "python -m tests.jobs.regenerate"


def test_each_golden_file_has_a_case_and_each_target_a_golden_file() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {golden_name(name) for name in GOLDENS}
    assert {name.partition(".")[2] for name in GOLDENS} == set(Target)


@pytest.mark.parametrize(("case", "target"), WITH_SCHEMA)
def test_strict_schema_passes(case: Case, target: Target) -> None:
    schemas.need()
    job = made(case, target)
    for document in job.documents:
        if target is Target.TRAINJOB:
            continue  # its models judge it
        kind = document.get("kind", "vertex-tuning" if "studySpec" in document else target.value)
        assert schemas.complaints(kind, document) == []
    if target is Target.VERTEX:
        assert job.api is not None
        assert schemas.complaints("vertex-tuning" if "studySpec" in job.api else "vertex-api", job.api) == []


@pytest.mark.parametrize("case", TRAINJOBS)
def test_kubeflows_models_read_every_object(case: Case) -> None:
    for document in made(case, Target.TRAINJOB).documents:
        assert kubeflow_models.complaints(document) == []


READ = ("strange-args.vertex", "strange-args.compose", "everything.ai-platform", "placed.jobset", "eci-trio.eci")


@pytest.mark.parametrize(("case", "target"), [param for param in PAIRS if param.id in READ])
def test_every_reader_reads_the_same(case: Case, target: Target) -> None:
    job = made(case, target)
    text = dump(job)
    assert list(yaml.safe_load_all(text)) == list(job.documents)
    for version in ((1, 1), (1, 2)):
        reader = YAML(typ="safe", pure=True)
        reader.version = version
        assert list(reader.load_all(io.StringIO(text))) == list(job.documents)
    whole = json.loads(dump(job, Format.JSON))
    if job.api is None:
        assert (whole["items"] if len(job.documents) > 1 else [whole]) == list(job.documents)


@pytest.mark.parametrize(("case", "target"), JUDGED)
def test_lint_finds_nothing_in_our_own(case: Case, target: Target) -> None:
    job = made(case, target)
    for form in (Format.YAML, Format.JSON):
        messages = lint(dump(job, form), "config.yaml", region=case.spec.job.region)
        assert [str(message) for message in messages if message.severity is Severity.ERROR] == []
