"""`imgtool lint`, and the job of a runtime version, through the command line."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml

from training_imgtool.cli.main import _run

OLD = """\
workerPoolSpecs:
- machineSpec: {{machineType: n1-standard-4}}
  replicaCount: 1
  containerSpec:
    imageUri: us-central1-docker.pkg.dev/p/t/mnist@sha256:{digest}
"""
DIGEST = "ab" * 32


def _write(folder: Path, *job: str) -> None:
    """The trainer and the spec of a job with a runtime version and these further keys."""
    (folder / "trainer").mkdir()
    (folder / "trainer/task.py").write_text("print(1)\n")
    keys = ("target: ai-platform", "region: us-central1", "runtime_version: '2.11'", "python_version: '3.7'", *job)
    (folder / "image.yaml").write_text(
        "name: mnist\ntensorflow: 2.11.0\nroles: {master: {machine: n1-standard-4}}\njob:\n"
        + "".join(f"  {key}\n" for key in keys)
    )


def test_lint_says_where_and_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(OLD.format(digest=DIGEST) + "maxRunningTime: 2h\n")
    assert _run(["lint", str(file)]) == 3
    assert capsys.readouterr().out.startswith(f"{file}:6:1: error: maxRunningTime:")
    assert _run(["lint", "--json", str(file)]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["findings"][0]["line"] == 6


def test_lint_of_no_file_and_of_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _run(["lint", str(tmp_path / "nothing.yaml")]) == 3
    assert "no such file" in capsys.readouterr().err.lower()
    text = OLD.format(digest=DIGEST) + "maxRunningTime: 2h\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert _run(["lint", "-"]) == 3
    assert capsys.readouterr().out.startswith("<stdin>:6:1: error: maxRunningTime:")


def test_nothing_checked_is_an_error_and_beside_what_was_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: example.com/v1\nkind: Train\nmetadata: {name: x}\n")
    assert _run(["lint", str(file)]) == 3
    assert "error: kind: nothing was checked" in capsys.readouterr().out
    file.write_text(
        f"{file.read_text()}---\napiVersion: v1\nkind: Service\nmetadata: {{name: x}}\nspec: {{clusterIP: None}}\n"
    )
    assert _run(["lint", str(file)]) == 0
    assert "warning: kind: nothing was checked" in capsys.readouterr().out
    assert _run(["lint", "--strict", str(file)]) == 3


def test_a_runtime_version_needs_no_image_and_packs_the_trainer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path, "staging: gs://my-bucket/staging")
    output = tmp_path / "config.yaml"
    assert _run(["config", str(tmp_path), "-o", str(output)]) == 0
    training = yaml.safe_load(output.read_text())["trainingInput"]
    assert training["runtimeVersion"] == "2.11"
    package = tmp_path / training["packageUris"][0].rpartition("/")[2]
    with tarfile.open(package) as archive:
        assert "mnist-0.1/trainer/task.py" in archive.getnames()
    assert _run(["config", str(tmp_path), "-o", str(output), "--command"]) == 0
    assert capsys.readouterr().out.startswith(f"gcloud storage cp {package} gs://my-bucket/staging/")


def test_submit_shows_what_it_would_do_and_keeps_a_file_of_somebody_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _write(tmp_path, "staging: gs://my-bucket/staging")
    assert _run(["config", "--command"]) == 0
    printed = capsys.readouterr().out
    assert _run(["submit", "--dry-run", "--progress", "quiet"]) == 0
    asked, _, submitted = capsys.readouterr().out.partition("gcloud storage cp")
    assert f"gcloud storage cp{submitted}" == printed
    assert asked.split()[:5] == ["gcloud", "ai-platform", "jobs", "list", "--filter"]
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "config.yaml").write_text("mine")
    assert _run(["submit"]) == 2
    assert "imgtool did not write it" in capsys.readouterr().err
    assert _run(["submit", "-o", "job.yaml"]) == 2
    assert "gcloud is not on PATH" in capsys.readouterr().err


def test_a_wrong_job_names_its_place_and_leaves_the_old_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path, "package_uris: [gs://my-bucket/p.tar.gz]", "project: a b")
    output = tmp_path / "config.yaml"
    output.write_text("old")
    assert _run(["config", str(tmp_path), "-o", str(output)]) == 3
    assert f"{tmp_path}/image.yaml:10:12: job.project:" in capsys.readouterr().err
    assert output.read_text() == "old"
