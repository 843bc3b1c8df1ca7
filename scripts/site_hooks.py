"""Hooks of mkdocs: the navigation is that of docs/README.md, and linked files outside of docs/ come into the site.

Such a file lies under `source/`: a page of Markdown as a page, everything else as it is. Links are rewritten on the
way, so that the same pages work on a Git server.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

CHECKOUT = Path(__file__).resolve().parent.parent
DOCS = CHECKOUT / "docs"
SOURCE = "source"  # the folder of the site for what lies outside of docs/
MORE = ("jobs/README.md",)  # whose tables list pages that docs/README.md leaves out
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_config(config: Any) -> Any:
    """Builds the navigation: a section per heading of docs/README.md, with the pages that its tables and lists name."""
    index = (DOCS / "README.md").read_text()
    sections: dict[str, list[str]] = {"Start": ["README.md"]}
    listed = {"README.md", "jobs/README.md"}
    for title, text in (part.split("\n", 1) for part in index.split("\n## ")[1:]):
        if title != "Questions":
            sections[title] = [found for found in dict.fromkeys(_pages(text)) if found not in listed]
            listed.update(sections[title])
    jobs = [f"jobs/{name}" for name in dict.fromkeys(_pages((DOCS / MORE[0]).read_text(), inside="jobs"))]
    sections["Start"] += [name for name in dict.fromkeys(_pages(index)) if name not in listed]
    sections["Jobs"] = ["jobs/README.md", *(name for name in jobs if name not in listed)]
    background = [f"{SOURCE}/{name}" for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bench/RESULTS.md")]
    sections["Background"] += background
    order = ("Start", "How to", "Jobs", "Reference", "Background")
    config.nav = [{title: sections[title]} for title in order]
    return config


def _pages(text: str, inside: str = ".") -> Iterator[str]:
    for found in _LINK.finditer(text):
        name = found.group(1)
        if name.endswith(".md") and "://" not in name and not name.startswith("..") and (DOCS / inside / name).exists():
            yield name


def on_files(files: Any, config: Any) -> Any:
    """Takes in what pages link to outside of docs/, and what those link to."""
    ahead = [*sorted(DOCS.rglob("*.md")), *(CHECKOUT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY"))]
    seen: set[Path] = set()
    while ahead:
        page = ahead.pop()
        targets = _outside(page) if page.suffix == ".md" else set()
        ahead += targets - seen
        seen |= targets | ({page} if not page.is_relative_to(DOCS) else set())
    for path in sorted(seen):
        files.append(File.generated(config, _place(path), abs_src_path=str(path)))
    return files


def _outside(page: Path) -> set[Path]:
    targets = {(page.parent / found.group(1)).resolve() for found in _LINK.finditer(page.read_text())}
    return {target for target in targets if target.is_file() and not target.is_relative_to(DOCS)}


def _place(path: Path) -> str:
    """Returns where a file of the checkout is in the site's sources."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{SOURCE}/{path.relative_to(CHECKOUT).as_posix()}"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrites links that leave docs/, or that come from outside; a folder becomes its README.md."""
    here = PurePosixPath(page.file.src_uri)
    inside = here.parts[0] == SOURCE
    origin = CHECKOUT.joinpath(*here.parts[1:]) if inside else DOCS / here

    def rewrite(found: re.Match[str]) -> str:
        name, anchor = found.group(1), found.group(2) or ""
        target = (origin.parent / name).resolve()
        if "://" in name or not target.is_relative_to(CHECKOUT):
            return found.group(0)
        if target.is_dir() and (target / "README.md").exists():
            target /= "README.md"
        if target == CHECKOUT / "docs/README.md" or not target.is_file():
            target = DOCS / "README.md" if target.is_file() else target
        return os.path.relpath(_place(target), here.parent.as_posix()) + anchor

    return _LINK.sub(rewrite, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Gives the theme's search dialog the name that screen readers say."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def on_post_build(config: Any) -> None:
    """Writes llms.txt (llmstxt.org): each page with its description, by the sections of docs/README.md."""
    index = (DOCS / "README.md").read_text()
    summary = (CHECKOUT / "README.md").read_text().split("\n\n")[1]
    lines = [
        f"# {config.site_name}",
        "",
        f"> {summary}",
        "",
        "- [tutorial](tutorial.html): from installation to a job file",
    ]
    for title, text in (part.split("\n", 1) for part in index.split("\n## ")[1:]):
        rows = re.findall(r"^\| \[([^\]]+)\]\(([^)]+)\.md\) \| (.+?) \|$", text, re.MULTILINE)
        lines += ["", f"## {title}", "", *(f"- [{name}]({page}.html): {about}" for name, page, about in rows)]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
