"""Tells uv which packages come from one index only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from training_imgtool.model.requirements import Binding
from training_imgtool.resolve.wheels.index.credentials import add_login


def write_bound(bound: tuple[Binding, ...], environ: Mapping[str, str], work: Path) -> str:
    """Writes a project that requires the bound packages, each from its index, and returns the path of its file.

    The indexes have names of our own, so that uv sends the login of an index only to the URL for which the user set it.
    Source: https://docs.astral.sh/uv/concepts/indexes/#pinning-a-package-to-an-index
    """
    names = {url: f"bound-{number}" for number, url in enumerate(dict.fromkeys(one.url for one in bound))}
    lines = ['[project]\nname = "imgtool-bound"\nversion = "0"\n']
    lines.append(f"dependencies = {json.dumps([*dict.fromkeys(one.package for one in bound)])}\n")
    for url, name in names.items():
        lines.append(
            f'[[tool.uv.index]]\nname = "{name}"\nurl = {json.dumps(add_login(url, environ))}\nexplicit = true\n'
        )
    lines.append("[tool.uv.sources]\n")
    for package in dict.fromkeys(one.package for one in bound):
        rows = [one for one in bound if one.package == package]
        texts = (
            f'{{index = "{names[one.url]}"{f", marker = {json.dumps(one.marker)}" if one.marker else ""}}}'
            for one in rows
        )
        lines.append(f"{package} = [{', '.join(texts)}]\n")
    (work / "bound").mkdir()
    path = work / "bound/pyproject.toml"
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)
