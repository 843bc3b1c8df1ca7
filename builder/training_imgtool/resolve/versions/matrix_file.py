"""Reads the matrix's file and version without parsing the YAML, which is enough to check that a lock is current."""

from __future__ import annotations

import re

from training_imgtool.base.resources import data_file


def matrix_bytes() -> bytes:
    """Reads the text of `data/compat.yaml`."""
    return data_file("compat.yaml").read_bytes()


def matrix_version() -> str:
    """Reads the matrix's own version, on which a lock depends, without parsing YAML."""
    match = re.search(rb'^version: "([^"\n]+)"$', matrix_bytes()[:4096], re.MULTILINE)
    if match is None:
        raise ValueError("compat.yaml has no version")
    return match.group(1).decode()
