"""A job file as text, its command lines, its tables and the trainer's package."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs import schemas
from tests.jobs.specs import CASES, ONE, TRIO, images, spec, with_module
from training_imgtool.base.errors import FieldError, InputError, UsageError
from training_imgtool.base.resources import data_file
from training_imgtool.jobs import Format, JobOptions, job_data
from training_imgtool.jobs.rules import shapes
from training_imgtool.jobs.targets.google.package import build_package, staged_uri, trainer_package
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.jobs.yamlio import read, read_table, to_yaml
from training_imgtool.model.job import Scheduling
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

AI, VX = Target.AI_PLATFORM, Target.VERTEX
TORTURE = [
    "y", "n", "Y", "N", "yes", "no", "on", "off", "true", "null", "~", "", " ", "1e3", "1e-3", "5e-4", "1E-4", "1.5e3",
    "0755", "0o17", "0x1F", "0b1", "1_000", "2.10", ".5", "12:30", "22:22:22", "2001-01-01", "=", "<<", "- a", "? b",
    "a: b", "#c", "a #c", "{", "[", "*a", "&a", "!a", "%a", "@a", "`a", "|", ">", "'", '"', "\\", "\t", "\n", "\r\n",
    "\x85", "\u2028", "\ufeff", "é", "😀", "a" * 500, "a b " * 100, "---", "...", "nan", ".inf", "0.1e1", "+1", "1,000",
]  # fmt: skip


@pytest.mark.parametrize("text", TORTURE)
def test_any_string_survives_every_reader(text: str) -> None:
    from ruamel.yaml import YAML

    document = {"args": [text], "map": {text or "k": text}}
    written = to_yaml(document)
    assert written.isascii()
    assert yaml.safe_load(written) == document
    for version in ((1, 1), (1, 2)):
        reader = YAML(typ="safe", pure=True)
        reader.version = version
        assert reader.load(written) == document
    assert read(written, "f")[0].data == document


def test_numbers_and_booleans_stay_bare() -> None:
    assert to_yaml({"a": 1, "b": True, "c": 0.5, "d": 1e-05, "e": [], "f": {}}) == (
        "a: 1\nb: true\nc: 0.5\nd: 1.0e-05\ne: []\nf: {}\n"
    )


def test_the_header_says_by_whom_from_what_and_how_to_submit() -> None:
    first = dump(job_data(spec(ONE), images(spec(ONE)), AI, JobOptions(version="1.2.3", file="out/job.yaml")))
    lines = first.splitlines()
    assert lines[0].startswith("# Written by imgtool 1.2.3 for ai-platform; spec ")
    assert lines[1] == "# Submit with imgtool submit, or:"
    assert "--config out/job.yaml" in first
    other = dump(job_data(spec(TRIO), images(spec(TRIO)), AI, JobOptions(version="1.2.3")))
    assert lines[0] != other.splitlines()[0]  # another spec, another hash


@pytest.mark.parametrize(
    ("target", "form", "having"),
    [
        (Target.TFJOB, Format.GCLOUD, "yaml, json"),
        (AI, Format.ENV, "yaml, json, gcloud"),
        (VX, Format.DOCKER_RUN, "yaml, json"),
    ],
)
def test_a_format_that_the_target_does_not_have(target: Target, form: Format, having: str) -> None:
    with pytest.raises(UsageError, match=f"{target} does not support the format {form}; it supports {having}$"):
        dump(job_data(spec(ONE), images(spec(ONE)), target), form)


def test_json_of_several_objects_is_a_list() -> None:
    of = spec({Role.MASTER: TRIO[Role.MASTER], Role.PS: TRIO[Role.PS]}, region=None)
    data = json.loads(dump(job_data(of, images(of), Target.PODS), Format.JSON))
    assert data["kind"] == "List"
    assert [item["kind"] for item in data["items"]] == ["Service", "Service", "Pod", "Pod"]


@pytest.mark.parametrize(
    "argv",
    [
        ("gcloud", "a", "--flag", "x y", "--", "--rate", "$HOME", "'", "--n"),
        ("gcloud", "--long", "x" * 120, "--bare", "--key=value", "--", "a", "b", "--c", "d"),
        ("true",),
    ],
)
def test_a_command_line_is_what_the_shell_reads(argv: tuple[str, ...]) -> None:
    assert shlex.split(command_line(argv).replace("\\\n", "")) == list(argv)
    done = subprocess.run(
        ["bash", "-c", f'printf "%s\n" {command_line(argv)}'], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == list(argv)


def test_docker_run_lines_are_shell_commands() -> None:
    case = next(case for case in CASES if case.name == "vms")
    job = job_data(case.spec, images(case.spec), Target.TF_CONFIG, case.job_options())
    lines = [line for line in dump(job, Format.DOCKER_RUN).splitlines() if line and not line.startswith("#")]
    assert len(lines) == 4
    words = shlex.split(lines[2])
    assert words[:2] == ["docker", "run"]
    config = json.loads(next(word for word in words if word.startswith("TF_CONFIG=")).partition("=")[2])
    assert config["task"] == {"type": "worker", "index": 1}
    assert words[-1] == "--epochs=1"
    assert "@sha256:" in words[-2]


def test_env_files_are_one_line_per_variable() -> None:
    case = next(case for case in CASES if case.name == "vms")
    job = job_data(case.spec, images(case.spec), Target.TF_CONFIG, case.job_options())
    blocks = dump(job, Format.ENV).split("\n\n")
    assert [block.splitlines()[0] for block in blocks][:2] == ["# master-0 on vm-1", "# worker-0 on vm-2"]
    for block in blocks:
        names = [line.partition("=")[0] for line in block.splitlines()[1:]]
        assert names == ["TF_CONFIG", "CLUSTER_SPEC"]
        assert all(json.loads(line.partition("=")[2]) for line in block.splitlines()[1:])


def test_tables_have_sources_and_dates() -> None:
    folder = data_file("machines")
    tables = {path.stem: read_table(f"machines/{path.name}") for path in sorted(folder.glob("*.yaml"))}
    assert set(tables) == {"ai_platform", "eci", "gke", "gpus", "tpus", "vertex"}
    for name in tables.keys() - {"ai_platform"}:
        assert tables[name]["date"], name
        assert tables[name]["sources"], name
    machine = set(schemas_enum("vertex-custom-job-spec", "GoogleCloudAiplatformV1MachineSpec", "acceleratorType"))
    assert {gpu for row in tables["vertex"]["machines"] for gpu in row["gpus"]} <= machine
    listed = [name for row in tables["vertex"]["machines"] for name in row["machines"]]
    assert len(listed) == len(set(listed))


def schemas_enum(file: str, definition: str, key: str) -> list[str]:
    schemas.need()
    schema = json.loads((schemas.FOLDER / f"{file}.schema.json").read_text())
    enum: list[str] = schema["definitions"][definition]["properties"][key]["enum"]
    return enum


@pytest.mark.parametrize("shape", ["CustomJob", "CustomJobSpec", "WorkerPoolSpec", "ContainerSpec", "MachineSpec"])
def test_shapes_have_the_keys_of_the_schemas(shape: str) -> None:
    schemas.need()
    schema = json.loads((schemas.FOLDER / "vertex-custom-job-spec.schema.json").read_text())
    definition = schema["definitions"][f"GoogleCloudAiplatformV1{shape}"]
    assert set(shapes._keys(shapes._shape(shape))) == set(definition["properties"])


FILES = {"trainer/task.py": b"print('x')\n", "trainer/models/net.py": b"", "trainer/data.json": b"{}"}


def packaged(of: ImageSpec, files: dict[str, bytes] | None = None) -> Any:
    return trainer_package(of, FILES if files is None else files)


def test_the_same_trainer_is_the_same_package() -> None:
    of = spec(ONE, staging="gs://bkt/stage/")
    first, second = packaged(of), packaged(of, dict(reversed(FILES.items())))
    assert first == second
    assert staged_uri(of, first) == staged_uri(of, second)
    assert staged_uri(of, first).startswith("gs://bkt/stage/")
    assert staged_uri(of, first).endswith("/mnist-0.1.tar.gz")
    assert staged_uri(of, packaged(of, {"trainer/task.py": b"2"})) != staged_uri(of, first)


def test_a_package_is_a_source_distribution_that_installs(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packaged(spec(ONE)).data))) as tar:
        names = tar.getnames()
        assert "mnist-0.1/setup.py" in names
        assert "mnist-0.1/trainer/__init__.py" in names
        assert "mnist-0.1/trainer/models/__init__.py" in names
        tar.extractall(tmp_path, filter="data")
    source = (tmp_path / "mnist-0.1" / "setup.py").read_text()
    assert "name='mnist', version='0.1'" in source
    compile(source, "setup.py", "exec")
    done = subprocess.run(
        [sys.executable, "-m", "trainer.task"], cwd=tmp_path / "mnist-0.1", capture_output=True, text=True, check=True
    )
    assert done.stdout == "x\n"


def test_a_folder_is_packed_without_caches_and_links(tmp_path: Path) -> None:
    trainer = tmp_path / "trainer"
    (trainer / "__pycache__").mkdir(parents=True)
    (trainer / "__pycache__" / "task.pyc").write_bytes(b"x")
    (trainer / "task.py").write_bytes(FILES["trainer/task.py"])
    (trainer / ".env").write_text("SECRET=1")
    (trainer / "link.py").symlink_to(tmp_path / "elsewhere.py")
    (tmp_path / "elsewhere.py").write_text("")
    assert build_package(spec(ONE), tmp_path) == packaged(spec(ONE), {"trainer/task.py": FILES["trainer/task.py"]})


def test_a_package_without_the_module() -> None:
    with pytest.raises(InputError, match=r"trainer\.other is not in the package: expected trainer/other\.py"):
        packaged(with_module(spec(ONE), "trainer.other"))
    with pytest.raises(FieldError, match=r"job\.staging: is missing"):
        staged_uri(spec(ONE), packaged(spec(ONE)))


def test_compose_restarts_replicas_as_often_as_the_spec_says() -> None:
    of = spec(ONE, region=None, scheduling=Scheduling(restarts=3))
    (document,) = job_data(of, images(of), Target.COMPOSE).documents
    assert document["services"]["master"]["restart"] == "on-failure:3"
