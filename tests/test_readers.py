"""What others wrote is refused in a moment: numbers of thousands of digits, and nesting without an end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.http.retry import retry_after
from training_imgtool.base.reference import parse_reference
from training_imgtool.model.load import load
from training_imgtool.model.requirement_files import read_dependencies
from training_imgtool.model.requirements import parse_requirements
from training_imgtool.oci.registry.auth.logins import read_config
from training_imgtool.oci.registry.manifests import OCI_MANIFEST, parse_manifest
from training_imgtool.resolve.lock.parse import parse_lock
from training_imgtool.resolve.versions.closure import find_broken, parse_metadata
from training_imgtool.resolve.wheels.index.page import PageError, parse_page
from training_imgtool.resolve.wheels.wheel_tags import choose_wheel

_DIGITS = "1" * 5000
_BOMBS = {
    "json-number": f'{{"files": {_DIGITS}}}',
    "json-depth": "[" * 100_000,
    "toml-number": f"version = {_DIGITS}",
    "toml-depth": f"version = {'[' * 100_000}",
    "requirement": f"pandas>={_DIGITS}",
    "yaml-number": f"python: {_DIGITS}",
    "reference": f"registry.example.com:{_DIGITS}/a:b",
    "metadata": f"Name: a\nVersion: {_DIGITS}\nRequires-Dist: b<{_DIGITS}\nRequires-Python: >={_DIGITS}\n\n",
    "wheel": f"a-1-{_DIGITS}-py3-none-any.whl",
}


def _read_login(text: str, folder: Path) -> object:
    (folder / "config.json").write_text(text)
    return read_config(folder)


def _read_spec(text: str, folder: Path) -> object:
    (folder / "image.yaml").write_text(text)
    return load(folder / "image.yaml")


def _close(text: str, _folder: Path) -> object:
    return list(
        find_broken([parse_metadata(text), parse_metadata("Name: b\nVersion: 1\n")], {"python_version": "3.11"})
    )


@pytest.mark.parametrize("bomb", _BOMBS)
@pytest.mark.parametrize(
    "read",
    [
        lambda text, _folder: parse_lock(text.encode(), "image.lock"),
        lambda text, _folder: parse_manifest(text.encode(), OCI_MANIFEST, "image"),
        lambda text, _folder: parse_page(text.encode(), "application/json", "https://index.example.com/"),
        lambda text, _folder: parse_page(text.encode(), "text/html", "https://index.example.com/"),
        lambda text, _folder: parse_requirements((("requirements.txt", text),)),
        lambda text, _folder: read_dependencies(text, "pyproject.toml", extras=(), groups=()),
        lambda text, _folder: parse_reference(text),
        lambda text, _folder: choose_wheel([text], "3.11", "linux/amd64", "2.36"),
        lambda text, _folder: retry_after(text.rpartition(" ")[2], 0),
        _read_login,
        _read_spec,
        _close,
    ],
    ids=[
        *("lock", "manifest", "json-page", "html-page", "requirements", "pyproject", "reference", "wheel"),
        *("retry-after", "login", "spec", "metadata"),
    ],
)
def test_bombs_are_errors_with_words(read: Callable[[str, Path], object], bomb: str, tmp_path: Path) -> None:
    with suppress(ImgtoolError, PageError):
        read(_BOMBS[bomb], tmp_path)
