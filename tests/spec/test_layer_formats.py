"""Which compression a spec gets, and that every target has a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.project import SPEC
from training_imgtool.spec.job import Target
from training_imgtool.spec.layer_formats import READERS, STREAMING, layer_format, reader_of
from training_imgtool.spec.load import load


@pytest.mark.parametrize("target", Target)
def test_every_target_has_a_reader_with_a_source(target: Target) -> None:
    reader = READERS[target]
    assert reader.source
    assert reader.runtime
    assert reader_of(target, None) is reader


@pytest.mark.parametrize(
    ("target", "registry", "zstd"),
    [
        (Target.JOBSET, "registry.example.com/team", True),
        (Target.PODS, "123456789012.dkr.ecr.eu-west-1.amazonaws.com/a", True),
        (Target.JOBSET, "us-central1-docker.pkg.dev/project/repository", None),
        (Target.TFJOB, "gcr.io/project", None),
        (Target.TFJOB, "eu.gcr.io:443/project", None),
        (Target.PODS, "registry.cn-hangzhou.aliyuncs.com/a", False),
        (Target.PODS, "notgcr.io.example.com/a", True),
        (Target.VERTEX, "registry.example.com/team", None),
        (Target.ECI, None, False),
    ],
)
def test_reader(target: Target, registry: str | None, zstd: bool | None) -> None:
    assert reader_of(target, registry).zstd is zstd
    assert all(reader.source for reader in STREAMING.values())


@pytest.mark.parametrize(
    ("more", "compression"),
    [
        ("", "splice"),
        ("job: {target: jobset}\n", "zstd"),
        ("job: {target: jobset}\nregistry: gcr.io/project\n", "splice"),
        ("job: {target: jobset}\ncompression: gzip\n", "gzip"),
        ("job: {target: vertex}\ncompression: zstd\n", "zstd"),
    ],
)
def test_choice(tmp_path: Path, more: str, compression: str) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").touch()
    spec = SPEC.split("job:", maxsplit=1)[0]
    spec = "".join(line for line in spec.splitlines(keepends=True) if not line.startswith("registry:"))
    (tmp_path / "image.yaml").write_text(spec + more)
    chosen = layer_format(load(tmp_path / "image.yaml").spec)
    assert chosen.compression == compression
    assert chosen.why
