"""The pages of docs/jobs, and come-from.md: what their commands print. `scripts/docs` writes it into them anew.

On a page a ```yaml block that begins with `# FILE` is a file of the reader's folder, and `image.yaml` the spec of the
commands below it; a ```console block holds one `$ imgtool …`, which may end in a pipe, and what it prints; what goes to
standard error follows once under "On standard error:". The commands run in such a folder, through the whole command
line. Two things are made up: the lock's wheels, and the registry's answer, one digest per key.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

from tests import plans
from training_imgtool.app import config
from training_imgtool.base.reference import Digest
from training_imgtool.cli.main import _run
from training_imgtool.model.load import load
from training_imgtool.model.lock import Lock
from training_imgtool.model.spec import Role
from training_imgtool.plan.inputs import Inputs
from training_imgtool.resolve.lock.lockfile import dump_lock, lock_inputs
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.versions.resolve import resolve

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "jobs"
PAGES = [*sorted(FOLDER.glob("*.md")), FOLDER.parent / "howto/come-from.md"]
_BLOCK = re.compile(
    r"```(?P<kind>yaml|console)\n(?P<body>.*?)```\n(?P<errors>\nOn standard error:\n\n```text\n.*?```\n)?", re.DOTALL
)


def current(text: str) -> str:
    """The page with every output as the command prints it now."""
    with tempfile.TemporaryDirectory() as folder, _inside(Path(folder)):
        Path("trainer").mkdir()
        Path("trainer/task.py").write_text('print("training")\n')
        Path("requirements.txt").touch()
        shown: set[str] = set()
        return _BLOCK.sub(lambda block: _block(block, shown), text)


def _block(block: re.Match[str], shown: set[str]) -> str:
    body = block["body"]
    named = re.match(r"# (\S+\.yaml)\n", body)
    if block["kind"] == "yaml":
        if named:
            Path(named[1]).write_text(body)
            _lock(Path(named[1]))
        return block[0]
    command = re.match(r"\$ imgtool (.*?[^\\])\n", body, re.DOTALL)
    if command is None:
        return block[0]
    words, _, pipe = command[1].replace("\\\n", " ").partition(" | ")
    output, printed = _printed(shlex.split(words))
    if pipe:
        output = subprocess.run(["sh", "-c", pipe], input=output, capture_output=True, text=True, check=True).stdout
    errors = f"\nOn standard error:\n\n```text\n{printed}```\n" if printed and printed not in shown else ""
    shown.add(printed)
    return f"```console\n{command[0]}{output}```\n{errors}"


def _lock(path: Path) -> None:
    """Writes the lock of a spec that runs images, with made-up wheels."""
    path.with_suffix(".lock").unlink(missing_ok=True)
    if path.name != "image.yaml":
        return
    spec_file = load(path)
    if spec_file.spec.job.runtime_version:
        return
    variants = tuple(
        replace(plans.locked(base=variant.base), variant=variant)
        for variant in resolve(spec_file.spec, load_matrix()).variants
    )
    lock = Lock(inputs=lock_inputs(spec_file), platform=spec_file.spec.platform, variants=variants)
    path.with_suffix(".lock").write_text(dump_lock(lock))


def digests(inputs: Inputs, *_rest: object) -> Mapping[Role, Digest]:
    """Made-up digests in the spec's own repository, each from the first role that has the image."""
    first: dict[str, Role] = {}
    named = {image.role: first.setdefault(image.key, image.role) for image in inputs.images}
    return {
        role: inputs.repository.digest("sha256:" + hashlib.sha256(name.encode()).hexdigest())
        for role, name in named.items()
    }


def _printed(words: list[str]) -> tuple[str, str]:
    """What `imgtool WORDS` writes to standard output and to standard error."""
    output, errors = io.StringIO(), io.StringIO()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("IMGTOOL_")}
    with (
        mock.patch.dict(os.environ, environ, clear=True),
        mock.patch.object(config, "require_images", digests),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        _run(words)
    return output.getvalue(), errors.getvalue()


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
