"""Lint of Slurm's scripts, SkyPilot's tasks and Compose files: what sbatch, sky and docker compose refuse and take."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.jobs.faults_pods import POD
from tests.jobs.specs import CASES, text_of
from training_imgtool.cli.main import _run
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.model.targets import Target

SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n"
TASK = """\
name: mnist
num_nodes: 2
resources: {infra: gcp/us-central1, accelerators: A100:8, disk_tier: high, ports: 80, autostop: 10}
envs: {A: 1}
file_mounts: {/data: {source: gs://bkt, mode: MOUNT}}
run: echo
"""
COMPOSE = """\
services:
  a: {image: "x@sha256:%s", command: [y, on], depends_on: [b], networks: [n], volumes: [v:/v, ./w:/w], ports: [22:22]}
  b: {build: .}
networks: {n: {}}
volumes: {v: {}}
""" % ("a" * 64)


def errors(text: str) -> list[str]:
    return [str(item) for item in lint(text, "f") if item.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("-N two", "--nodes: 'two'"),
        ("--time=2h", "--time: '2h'"),
        ("--mem=32GiB", "--mem: '32GiB'"),
        ("--mem=100 M", "'M' is not an option"),
        ("--mem=1 --mem-per-cpu=1", "--mem-per-cpu does not go with --mem"),
        ("--cpus-per-task=0", "'0'"),
        ("--gpus=one", "'one'"),
        ("--signal=B:USR9@60", "'B:USR9@60'"),
        ("--mail-type=DONE", "'DONE'"),
        ("--array=5-1", "'5-1'"),
        ("--exclusive=yes", "'yes'"),
        ("--requeue=yes", "--requeue takes no value"),
        ("-Z 3", "'-Z'"),
        ("--nodes", "--nodes needs a value"),
        ("--node=2", "may be --nodefile, --nodelist, --nodes"),
        ("--job_name=x", "'--job_name=x' is not an option"),
        ("--comment='a", "a quote has no end"),
    ],
)
def test_what_sbatch_refuses(option: str, part: str) -> None:
    (error,) = errors(SCRIPT.replace("--nodes=2", option))
    assert error.startswith("f:2:1: ")
    assert part in error


@pytest.mark.parametrize(
    "option", ["-N2 -n 4 # two", "--time=1-2:3", "--exclusive", "--gres=gpu:a100:2", "--sig=TERM@9", "--nodes={{ n }}"]
)
def test_what_sbatch_takes_is_options_only(option: str) -> None:
    text = SCRIPT.replace("--nodes=2", option)
    (said,) = lint(text, "f")
    assert said.message.startswith("options only")
    assert len(errors(text)) == 0
    assert [item.severity for item in lint(text, "f", strict=True)] == [Severity.ERROR]


def test_slurm_itself_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = SCRIPT.replace("--nodes=2", "--time=2h --site-option")
    (tmp_path / "job.sh").write_text(wrong)
    (tmp_path / "sbatch").write_text('#!/bin/sh\ncat > "$0.read"; echo "sbatch: error: $SAYS" >&2; exit $CODE\n')
    (tmp_path / "sbatch").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SAYS", "no partition x")
    for code, last in (("1", "no partition x [sbatch --test-only]"), ("0", "")):
        monkeypatch.setenv("CODE", code)
        assert _run(["lint", str(tmp_path / "job.sh")]) == (3 if last else 0)
        assert last in capsys.readouterr().out
    assert (tmp_path / "sbatch.read").read_text() == wrong
    monkeypatch.setenv("CODE", "1")
    monkeypatch.setenv("SAYS", "Unable to contact slurm controller")
    assert _run(["lint", str(tmp_path / "job.sh")]) == 3
    assert "options only" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("image", "part"),
    [
        ("docker://r.example#t/x:v1@sha256:" + "a" * 64, "enroot 3 cannot read"),
        ("hello.sqsh", "expected ./hello.sqsh"),
        ("nvcr.io/nvidia/tensorflow:24.05", "expected nvcr.io#nvidia/tensorflow:24.05"),
        ("docker://r.example#t/x:v1", "is a tag"),
        ("./x.sqsh", "is a file: imgtool does not check the image"),
        ("$IMAGE", "is a placeholder: imgtool does not check the image"),
        ("docker://r.example#t/x@sha256:" + "a" * 64, None),
    ],
)
def test_images_of_pyxis(image: str, part: str | None) -> None:
    said = [str(item) for item in lint(SCRIPT.replace("hostname", f"--container-image={image} a"), "f")]
    assert [str(part) in text for text in said if "options only" not in text] == ([True] if part else [])


@pytest.mark.parametrize(
    ("text", "old", "new", "part"),
    [
        (TASK, "num_nodes: 2", "num_nodes: two", "f:2:12: error: num_nodes: found 'two': expected a whole number"),
        (TASK, "envs: {A: 1}", "envs: {A-B: 1}", "'A-B' is not a key here"),
        (TASK, "gcp/us", "google/us", "resources.infra: found 'google/us-central1'"),
        (TASK, "mode: MOUNT", "mode: MOUNTED", "expected MOUNT, COPY, MOUNT_CACHED"),
        (TASK, "disk_tier: high", "disk_tier: fast", "resources.disk_tier: 'fast': expected low"),
        (TASK, "ports: 80", "ports: {a: 1}", "resources.ports: a mapping: expected"),
        (TASK, "autostop: 10", "autostop: {idle: 1}", "'idle' is not a key here"),
        (TASK, "accelerators", "accelerator", "'accelerator' is not a key here"),
        (COMPOSE, "depends_on: [b]", "depends_on: [c]", "services.a.depends_on[0]: 'c' is none of `services`"),
        (COMPOSE, "networks: [n]", "networks: {m: }", "'m' is none of `networks`"),
        (COMPOSE, "v:/v,", "uu:/v,", "services.a.volumes[0]: 'uu' is none of `volumes`"),
        (COMPOSE, "command: [y, on]", "command: {a: b}", "services.a.command: a mapping: expected text or a list"),
        (COMPOSE, "ports:", "port:", "'port' is not a key here"),
        (COMPOSE, "{build: .}", "{}", "services.b: has neither image nor build"),
    ],
)
def test_what_the_projects_schemas_refuse(text: str, old: str, new: str, part: str) -> None:
    assert errors(text) == []
    assert old in text
    (error,) = errors(text.replace(old, new, 1))
    assert part in error


@pytest.mark.parametrize(
    "pair", [f"{c.name}.{t}" for c in CASES for t in c.targets if t in (Target.COMPOSE, Target.SKYPILOT)]
)
def test_files_of_imgtool_have_no_error(pair: str) -> None:
    assert errors(text_of(pair)) == []


TOKEN = "hf_" + "a1" * 20


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT.replace("srun", f"export X={TOKEN}\nsrun"),
        TASK.replace("A: 1", f"HF: {TOKEN}"),
        TASK.replace("A: 1", "SKYPILOT_DOCKER_PASSWORD: correct-horse"),
        COMPOSE.replace("{build: .}", "{build: ., environment: [DB_PASSWORD=correct-horse]}"),
        COMPOSE.replace("{build: .}", f"{{build: ., command: [--token, {TOKEN}]}}"),
        POD.replace('"1"', TOKEN),
        f"trainingInput: {{args: [--token={TOKEN}]}}\n",
    ],
)
def test_a_secret_in_the_file_is_warned_of_and_not_shown(text: str) -> None:
    said = [item for item in lint(text, "f") if "looks like" in item.message or "so it is not shown" in item.message]
    assert len(said) == 1
    assert TOKEN not in "".join(map(str, lint(text, "f")))


def test_a_reference_to_a_secret_is_none() -> None:
    assert "not shown" not in "".join(map(str, lint(TASK.replace("A: 1", "HF_TOKEN: '${HF_TOKEN}'"), "f")))


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("#SBATCH\t--nodes=two", Severity.ERROR),
        ("#SBATCH --threads-per-core=0", Severity.ERROR),
        ("#SBATCH --container-image=r.example.com#team/a@sha256:" + "a" * 64, Severity.WARNING),
        (r"#SBATCH --container-image=r.example.com\#team/a@sha256:" + "a" * 64, None),
        (r"srun --container-image=r.example.com\#team/a@sha256:" + "a" * 64 + " echo", None),
        ("#SBATCH --nodes=2 \\ \\", None),
    ],
)
def test_lines_are_read_as_sbatch_reads_them(line: str, severity: Severity | None) -> None:
    found = {item.severity for item in lint(f"#!/bin/bash\n{line}\n", "f") if "options only" not in item.message}
    assert found == ({severity} if severity else set())


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("resources: {accelerators: 'L4:one'}", True),
        ("resources: {accelerators: 'L4:0'}", True),
        ("resources: {cpus: four}", True),
        ("resources: {memory: 16XB}", True),
        ("resources: {ports: [80, abc]}", True),
        ("resources: {any_of: [{cpus: x}]}", True),
        ("num_nodes: 0", True),
        ("resources: {accelerators: 'nvidia:24GB+:2', cpus: 4+, memory: 16GB, ports: 80-90, image_id: ami-1}", False),
        ("resources: {accelerators: {L4: 1}, cpus: 0.5, memory: 4x}", False),
    ],
)
def test_values_as_skypilot_parses_them(line: str, *, wrong: bool) -> None:
    assert bool(errors(f"name: x\nrun: echo\n{line}\n")) is wrong


def test_docker_compose_decides_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, file = tmp_path / "docker", tmp_path / "job.yaml"
    file.write_text(COMPOSE.replace("build: .", "comand: x, image: x"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _run(["lint", str(file)]) == 3
    assert "hint: schema only" in capsys.readouterr().out
    said = 'services.b.cpus: invalid value "two"'
    for code, text, expected in ((0, "", 0), (1, said, 3), (1, "required variable B is missing", 3)):
        program.write_text(f"#!/bin/sh\n[ $2 = version ] && exit\necho '{text}' >&2\nexit {code}\n")
        program.chmod(stat.S_IRWXU)
        assert _run(["lint", str(file)]) == expected
        assert (text or "tag") in capsys.readouterr().out
