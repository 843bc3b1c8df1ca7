"""Job files of public repositories: `public_files.tsv` has repository, commit, path and SHA-256 of each."""

from __future__ import annotations

import hashlib
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("public_files.tsv")


class PublicFile(NamedTuple):
    """One line of the list; `errors` are fields, joined by spaces."""

    kind: str
    repository: str
    commit: str
    path: str
    sha256: str
    errors: str

    def __str__(self) -> str:
        return f"{self.repository} {self.path}"


def listed(kind: str | None = None) -> Iterator[PublicFile]:
    """The files of the list, of one kind or all."""
    for line in LIST.read_text().splitlines()[1:]:
        file = PublicFile(*line.split("\t"))
        if kind in {None, file.kind}:
            yield file


def read(file: PublicFile, clones: Path | None) -> bytes:
    """The file's bytes, from `clones/OWNER/NAME` or from github.com; raises OSError where they cannot be had."""
    if clones is not None:
        command = ("git", "-C", str(clones / file.repository), "show", f"{file.commit}:{file.path}")
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace").strip().splitlines()[-1])
        data = done.stdout
    else:
        url = f"https://raw.githubusercontent.com/{file.repository}/{file.commit}/{urllib.parse.quote(file.path)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            data = bytes(answer.read())
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise OSError("its bytes are others than the list's")
    return data
