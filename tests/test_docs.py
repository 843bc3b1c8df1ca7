"""The documentation says what is so: generated parts are current, commands and links exist."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from tests import plans
from tests.package_graph import ROOT, modules
from training_imgtool.base.context.secret_files import by_name
from training_imgtool.base.errors import UsageError
from training_imgtool.cli.app import command_line
from training_imgtool.model.json_schema import output_schema
from training_imgtool.model.recipe.jinja import exec_json, quote, shell
from training_imgtool.model.recipe.printing import print_template

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = [
    *(CHECKOUT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
OWN_FIRST = {"--version", "--help", "--install-completion", "--show-completion"}


@cache
def verbs() -> dict[str, set[str]]:
    """Every verb with its options."""
    group: Any = typer.main.get_command(command_line())
    return {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in group.commands.items()
    }


def commands_in(text: str) -> list[list[str]]:
    """The imgtool command lines of a page's code blocks and inline code."""
    blocks = re.findall(r"```(?:console|sh|shell|bash)\n(.*?)```", text, re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(imgtool [^`]+)`", text)
    for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        lines += re.findall(r"^\s*(?:- )?(?:run: )?(imgtool [a-z].*)$", block, re.MULTILINE)
    alone = [line.partition(" | ")[0] for line in lines if line.startswith("imgtool ")]
    return [shlex.split(line, comments=True) for line in alone]


def test_generated_parts_are_current() -> None:
    done = subprocess.run(
        [sys.executable, CHECKOUT / "scripts/docs", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_man_shows_every_verb_and_option() -> None:
    if not shutil.which("groff"):
        pytest.skip("no groff on this machine")
    command: list[str | Path] = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", CHECKOUT / "docs/imgtool.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = set(re.findall(r"(?<![\w-])[\w-]+", done.stdout))
    group: Any = typer.main.get_command(command_line())
    shown_options = (
        one for command in group.commands.values() for one in command.params if not getattr(one, "hidden", False)
    )
    assert not {*verbs(), *(name for one in shown_options for name in one.opts if name[0] == "-")} - shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_every_command_exists(page: Path) -> None:
    for words in commands_in(page.read_text()):
        verb, *rest = words[1:]
        if verb in OWN_FIRST or not verb.islower():  # options of the command itself; VERB as a placeholder
            continue
        assert verb in verbs(), f"{shlex.join(words)}: no such verb"
        options = {word.partition("=")[0] for word in rest[: rest.index("--") if "--" in rest else None]}
        unknown = {option for option in options if option.startswith("-")} - verbs()[verb] - {"--help", "-h"}
        assert not unknown, f"{shlex.join(words)}: {unknown}"


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have on a Git server."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


def test_the_index_has_every_page() -> None:
    index = CHECKOUT / "docs/README.md"
    targets = re.findall(r"\]\(([^)#\s]+)\)", index.read_text() + (CHECKOUT / "docs/jobs/README.md").read_text())
    names = {Path(target).name for target in targets} | {index.name}
    assert not {page.name for page in (CHECKOUT / "docs").rglob("*.md")} - names


@cache
def texts_in_code() -> str:
    """What the packages' strings say, one per line; `…` stands for a value that only a run knows."""
    beside = (ast.parse(path.read_text()) for path in ROOT.parent.glob("imgtool_*/*.py"))
    nodes = [node for tree in (*modules().values(), *beside) for node in ast.walk(tree)]
    constants = {
        node.targets[0].id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(map(text, node.values))
        if isinstance(node, ast.Constant):
            return str(node.value)
        value = node.value if isinstance(node, ast.FormattedValue) else None
        return constants.get(value.id, "…") if isinstance(value, ast.Name) else "…"

    kinds = (ast.JoinedStr, ast.Constant)
    return "\n".join(text(node) for node in nodes if isinstance(node, kinds))


def test_troubleshooting_has_messages_that_exist() -> None:
    page = (CHECKOUT / "docs/troubleshooting.md").read_text()
    table = page.partition("## By message")[2].partition("\n## ")[0]
    cells = "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    messages = [text for text in re.findall(r"`([^`]+)`", cells) if not text.startswith("imgtool ")]
    assert len(messages) > 20
    pieces = {piece.strip() for message in messages for piece in message.split("…") if piece.strip()}
    assert not {piece for piece in pieces if piece not in texts_in_code()}


def test_json_of_every_verb_is_described() -> None:
    page = (CHECKOUT / "docs/json.md").read_text()
    for verb, options in verbs().items():
        assert f"`{verb}`" in page
        with nullcontext() if "--json" in options else pytest.raises(UsageError, match="does not print a JSON"):
            output_schema(verb)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_every_block_of_yaml_is_yaml(page: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        yaml.safe_load(block)


def test_the_pipelines_say_the_same() -> None:
    """Three lines in each, and they are those of the page's beginning."""
    commands = [shlex.join(words) for words in commands_in((CHECKOUT / "docs/ci.md").read_text())]
    for verb in ("push --locked", "verify --locked", "config --locked -o config.yaml"):
        assert commands.count(f"imgtool {verb}") == 4, verb


def test_every_verb_is_in_the_readme() -> None:
    readme = (CHECKOUT / "README.md").read_text()
    missing = [verb for verb in verbs() if f"imgtool {verb}" not in readme]
    assert not missing


OTHERS = {  # what trainers and images read, and what a service sets
    *("AIP_MODEL_DIR", "CLUSTER_SPEC", "TF_CONFIG", "TPU_CONFIG", "TPU_NAME"),
    *("CUDA_VERSION", "NV_CUDNN_VERSION", "PYTHON_VERSION"),
}
COMPOSED = re.compile(r"PIP_[A-Z_]+|HTTPS?_PROXY|NO_PROXY|TMPDIR|UV_INDEX_NAME_(?:USERNAME|PASSWORD)")


def names_environment(node: ast.expr) -> bool:
    """Tells whether an expression is a name or an attribute such as `environ` and `self._environ`."""
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")).endswith("environ")


def variables_read() -> set[str]:
    """The variables that the package looks up, and every name that begins like one of its own, uv's or pip's."""
    found = set()
    for tree in modules().values():
        for node in ast.walk(tree):
            place: ast.expr | None = node if isinstance(node, ast.Constant) else None
            match node:
                case ast.Call(func=ast.Attribute(attr="get", value=mapping)) if names_environment(mapping):
                    place = node.args[0]
                case ast.Call(func=ast.Attribute(attr="getenv") | ast.Name(id="getenv")):
                    place = node.args[0]
                case ast.Subscript(value=mapping) if names_environment(mapping):
                    place = node.slice
            text = place.value if isinstance(place, ast.Constant) else None
            own = isinstance(text, str) and re.fullmatch(r"(?:IMGTOOL|UV|PIP)(?:_[A-Z]+)+", text)
            if isinstance(text, str) and (own or (place is not node and re.fullmatch(r"[A-Z][A-Z_]+", text))):
                found.add(text)
    return found - OTHERS


def test_every_environment_variable_is_on_the_page() -> None:
    page = (CHECKOUT / "docs/environment.md").read_text()
    described = set(re.findall(r"`([A-Z][A-Z_]+)`", page))
    assert variables_read() >= {"IMGTOOL_CACHE", "DOCKER_HOST", "NO_COLOR", "UV_INDEX_URL"}
    assert not variables_read() - described
    rows = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert not {name for name in rows if name not in texts_in_code() and not COMPOSED.fullmatch(name)}


def test_the_template_of_the_page_renders(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs/howto/own-template.md").read_text()
    (template,) = re.findall(r"```jinja\n(.*?)```", page, re.DOTALL)
    (tmp_path / "image.Dockerfile.j2").write_text(template)
    text = print_template(plans.recipe(), "image.Dockerfile.j2", tmp_path)
    assert text.index("WORKDIR /app\n") < text.index("COPY code/schema.json /app/") < text.index("ENTRYPOINT")
    filters = {"env_value": quote, "label": quote, "shell": shell, "exec_json": exec_json}
    assert set(re.findall(r"^\| `(\w+)` \| (?:a|one) ", page, re.MULTILINE)) == set(filters)


def test_the_page_lists_names_that_are_refused_as_secrets() -> None:
    page = (CHECKOUT / "docs/context.md").read_text()
    (names,) = re.findall(r"- \*\*by name\*\*: (.*?);\n", page, re.DOTALL)
    patterns = re.findall(r"`([^`]+)`", names)
    assert len(patterns) > 20
    judged = {
        p: by_name(f"{p}/x" if p[1:] in {"aws", "azure", "gnupg", "kube", "ssh"} else p.replace("*", "x"))
        for p in patterns
    }
    assert [pattern for pattern, secret in judged.items() if not secret] == [".env.example"]
