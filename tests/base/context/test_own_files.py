"""What imgtool itself wrote into a folder is no part of the images of the folder; what looks like it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from training_imgtool.base.context.context import scan
from training_imgtool.base.context.own_files import list_own_files

DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("image.lock", "# Made by `imgtool lock`: …\n"),
        ("config.yaml", "# Written by imgtool 0.1.0 for vertex; spec 1.\na: 1\n"),
        ("job.sbatch", "#!/bin/bash\n# Written by imgtool 0.1.0 for slurm; spec 1.\n"),
        ("images.json", '{\n  "schema": 1,\n  "ok": true,\n  "images": []\n}\n'),
        ("failed.json", '{\n  "schema": 1,\n  "ok": false,\n  "error": {}\n}\n'),
        ("out.cdx.json", "{}"),
        ("gha-creds-8f6d0a1b2c3d4e5f.json", '{"type": "external_account"}'),
        ("cosign.key", "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n"),
        ("cosign.pub", "-----BEGIN PUBLIC KEY-----\n"),
    ],
)
def test_own_files_are_left_out(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert name in list_own_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("push.txt", f"master host/x@sha256:{DIGEST}\n"),
        ("vocab.txt", "[PAD]\n[UNK]\nthe\n"),
        ("settings.json", '{\n  "schema": 1,\n  "ok": [1],\n  "x": 2\n}\n'),
        ("compact.json", '{"ok": true, "x": 2}'),
        ("bill.json", '{\n  "bomFormat": "CycloneDX",\n  "metadata": {}\n}\n'),
        ("image.yaml", "name: x\n"),
        ("program.py", "# Written by imgtool users\n"),
        ("server.pub", "-----BEGIN PUBLIC KEY-----\n"),
    ],
)
def test_files_that_only_look_alike_stay(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert name not in list_own_files(tmp_path)


def test_what_stdout_and_stderr_are_is_left_out_in_any_folder(tmp_path: Path) -> None:
    """In a process of its own, whose streams are files of the context that grow while it reads."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "task.py").write_text("")
    program = (
        "import sys; from pathlib import Path; from training_imgtool.base.context.context import scan\n"
        "print('begins', flush=True); print('too', file=sys.stderr, flush=True)\n"
        f"paths = scan(Path({str(tmp_path)!r})).paths()\n"
        f"Path({str(tmp_path / 'paths')!r}).write_text(' '.join(paths))\n"
    )
    with (tmp_path / "logs/out").open("w") as out, (tmp_path / "err").open("w") as err:
        subprocess.run([sys.executable, "-c", program], stdout=out, stderr=err, check=True)
    assert (tmp_path / "paths").read_text() == "logs task.py"
    assert "err" in scan(tmp_path).paths()
