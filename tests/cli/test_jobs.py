"""`imgtool lint`, `config --from`, and the job of a runtime version, through the command line."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from training_imgtool.cli.main import _run

OLD = """\
trainingInput:
  scaleTier: CUSTOM
  region: us-central1
  masterType: n1-standard-4
  masterConfig:
    imageUri: us-central1-docker.pkg.dev/p/t/mnist@sha256:{digest}
"""
DIGEST = "ab" * 32


def test_lint_says_where_and_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(OLD.format(digest=DIGEST) + "  maxRunningTime: 2h\n")
    assert _run(["lint", str(file)]) == 3
    assert capsys.readouterr().out.startswith(f"{file}:7:19: error: trainingInput.maxRunningTime:")
    assert _run(["lint", "--json", str(file)]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["findings"][0]["line"] == 7


def test_lint_of_a_right_file_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(OLD.format(digest=DIGEST))
    assert _run(["lint", str(file)]) == 0
    assert "error" not in capsys.readouterr().out


def test_from_an_ai_platform_job_to_vertex(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "old.yaml", tmp_path / "vertex.yaml"
    source.write_text(OLD.format(digest=DIGEST) + "  useChiefInTfConfig: true\n")
    assert _run(["config", "--from", str(source), "--target", "vertex", "-o", str(output)]) == 0
    pools = yaml.safe_load(output.read_text())["workerPoolSpecs"]
    assert pools[0]["containerSpec"]["imageUri"].endswith(f"@sha256:{DIGEST}")
    assert "useChiefInTfConfig" in capsys.readouterr().err


def test_from_to_another_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "old.yaml"
    source.write_text(OLD.format(digest=DIGEST))
    assert _run(["config", "--from", str(source), "--target", "tfjob"]) == 2
    assert "--from converts to vertex, not to tfjob" in capsys.readouterr().err


def test_a_runtime_version_needs_no_image_and_packs_the_trainer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("print(1)\n")
    (tmp_path / "image.yaml").write_text(
        "name: mnist\ntensorflow: 2.11.0\nroles: {master: {machine: n1-standard-4}}\n"
        "job: {target: ai-platform, region: us-central1, runtime_version: '2.11', python_version: '3.7', staging: gs://my-bucket/staging}\n"
    )
    output = tmp_path / "config.yaml"
    assert _run(["config", str(tmp_path), "-o", str(output)]) == 0
    training = yaml.safe_load(output.read_text())["trainingInput"]
    assert training["runtimeVersion"] == "2.11"
    package = tmp_path / training["packageUris"][0].rpartition("/")[2]
    with tarfile.open(package) as archive:
        assert "mnist-0.1/trainer/task.py" in archive.getnames()
    assert "gcloud storage cp" in capsys.readouterr().err


def test_a_wrong_job_names_its_place_and_leaves_the_old_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("print(1)\n")
    (tmp_path / "image.yaml").write_text(
        "name: mnist\ntensorflow: 2.11.0\nroles: {master: {machine: n1-standard-4}}\n"
        "job:\n  target: ai-platform\n  runtime_version: '2.11'\n  python_version: '3.7'\n  package_uris: [gs://my-bucket/p.tar.gz]\n"
        "  region: us-central1\n  scheduling: {max_wait: 60s}\n"
    )
    output = tmp_path / "config.yaml"
    output.write_text("old")
    assert _run(["config", str(tmp_path), "-o", str(output)]) == 3
    assert f"{tmp_path}/image.yaml:10:26: job.scheduling.max_wait:" in capsys.readouterr().err
    assert output.read_text() == "old"
