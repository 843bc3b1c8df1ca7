"""Texts of our own templates between runs: the same as without, and never believed when anything differs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.plans import role_plan
from training_imgtool.dockerfile import jinja
from training_imgtool.dockerfile import render as rendering
from training_imgtool.dockerfile.render import RenderCache, TemplateRoots, list_sources, render
from training_imgtool.plan import REVISION, RolePlan

OLD, NEW = "1" * 40, "2" * 40


def with_revision(revision: str, **changes: Any) -> RolePlan:
    return role_plan(labels={REVISION: revision, "team": "vision"}, **changes)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that Jinja was asked for."""
    found: list[str] = []
    here = rendering._render_here

    def noted(request: dict[str, Any]) -> dict[str, Any]:
        found.append(request["template"])
        return here(request)

    monkeypatch.setattr(rendering, "_render_here", noted)
    return found


def text(plan: RolePlan, cache: Path, roots: TemplateRoots | None = None) -> str:
    roots = roots or TemplateRoots()
    found = render(plan, roots=roots, key=None, cache=RenderCache(cache, list_sources(roots)))
    assert found == render(plan, roots=roots, key=None)
    return found


def test_a_second_run_and_another_revision_need_no_jinja(tmp_path: Path, asked: list[str]) -> None:
    first = text(with_revision(OLD), tmp_path)
    again = text(with_revision(NEW), tmp_path)
    assert first.replace(OLD, NEW) == again
    assert len(asked) == 3  # once for the cache; twice by the comparison in `text`


@pytest.mark.parametrize(
    "changed", [{"env": {"A": "b"}}, {"user": "trainer"}, {"exclude": ("tensorflow/include",)}, {"name": "gpu"}]
)
def test_other_values_are_rendered(tmp_path: Path, asked: list[str], changed: dict[str, Any]) -> None:
    text(with_revision(OLD), tmp_path)
    before = len(asked)
    text(with_revision(OLD, **changed), tmp_path)
    assert len(asked) == before + 2


def test_a_changed_template_is_rendered(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    shutil.copytree(TemplateRoots().builtin, folder)
    roots = TemplateRoots(builtin=folder)
    before = text(with_revision(OLD), tmp_path, roots)
    base = folder / "base.Dockerfile.j2"
    base.write_text(base.read_text().replace("WORKDIR {{ working_folder }}", "WORKDIR /srv"))
    jinja._environment.cache_clear()  # within one process our templates are taken to stay
    after = text(with_revision(OLD), tmp_path, roots)
    assert after == before.replace("WORKDIR /app", "WORKDIR /srv") != before


@pytest.mark.parametrize("damage", [b"", b"no\n[]", b'0\n["FROM evil AS worker\\n"]'])
def test_a_damaged_file_is_not_believed(tmp_path: Path, damage: bytes) -> None:
    whole = text(with_revision(OLD), tmp_path)
    for path in (tmp_path / "rendered").iterdir():
        path.write_bytes(damage)
    assert text(with_revision(OLD), tmp_path) == whole


def test_a_value_that_looks_like_the_mark_is_rendered_as_it_is(tmp_path: Path) -> None:
    plan = with_revision(OLD, env={"NOTE": "imgtool-revision-goes-here"})
    assert 'NOTE="imgtool-revision-goes-here"' in text(plan, tmp_path)
    assert not (tmp_path / "rendered").exists()


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert OLD in text(with_revision(OLD), tmp_path / "cache")
