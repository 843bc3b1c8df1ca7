"""Records the date and the commit of an image's first push, in a manifest that refers to the image (the note).

If you build the same image again, the date differs. So `verify` does not compare the note, and nothing depends on it.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from training_imgtool.oci.registry.manifests import Manifest

KIND = "application/vnd.dev.imgtool.push.v1+json"
DATE, COMMIT, DIRTY = "org.opencontainers.image.created", "dev.imgtool.commit", "dev.imgtool.dirty"
_VALUES = {DATE: r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", COMMIT: r"[0-9a-f]{40}(?:[0-9a-f]{24})?", DIRTY: r"true|false"}
_SECONDS = 30


def note_push(bill: bytes, source: Mapping[str, str]) -> bytes:
    """Makes the note of a push at this time, from `ask_git`'s answer and the manifest of the bill of materials."""
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return make_push_note(bill, {DATE: date, **source})


def make_push_note(bill: bytes, texts: Mapping[str, str]) -> bytes:
    """Makes a manifest with the annotations `texts`; its blob, which OCI requires, is the bill of materials."""
    document = json.loads(bill) | {"artifactType": KIND, "annotations": dict(texts)}
    return json.dumps(document, sort_keys=True).encode()


def ask_git(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Asks Git for the commit, and whether files in `folder` differ from it; returns {} outside a repository."""
    answers = []
    for words in (("rev-parse", "--verify", "HEAD"), ("status", "--porcelain", "--", ".")):
        try:
            done = subprocess.run(
                ["git", "-c", "core.fsmonitor=false", *words],  # a folder's own Git settings name programs
                cwd=folder, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True,
                timeout=_SECONDS, text=True, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return {}
        if done.returncode:
            return {}
        answers.append(done.stdout.strip())
    return {COMMIT: answers[0], DIRTY: "true" if answers[1] else "false"}


def read_push_note(manifest: Manifest) -> dict[str, str] | None:
    """Returns the annotations of a push note; None for other manifests, and for unknown annotations."""
    document = manifest.document
    texts = document.get("annotations")
    if manifest.is_index or document.get("artifactType") != KIND or not isinstance(texts, dict) or DATE not in texts:
        return None
    known = all(name in _VALUES and re.fullmatch(_VALUES[name], str(text)) for name, text in texts.items())
    return {name: str(text) for name, text in texts.items()} if known else None
