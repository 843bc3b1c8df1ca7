"""docs/tutorial.md is what happens, and --json what its schema says, with a TensorFlow of one file.

Numbers, hashes and the registry's name may differ; words, order and files may not. Progress comes from several threads,
so only the lines that the page shows are looked for, in any order.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.faults.base import put_base
from tests.faults.project import IMGTOOL, Project, small_wheels
from tests.local.test_summary import KILLED, SUCCESS
from tests.outputs import check_document, check_output
from tests.servers.registry_process import run_registry
from tests.servers.simple_index import SimpleIndex, serving
from tests.test_docs import verbs
from training_imgtool.local.rehearsal import Kill
from training_imgtool.local.summary import as_data
from training_imgtool.model.spec import Role

pytestmark = pytest.mark.registry

DOCS = Path(__file__).resolve().parent.parent / "docs"
_VARIES = (
    (r"\b[0-9a-f]{12,64}\b", "HASH"),
    (r"\b\d+(?:\.\d+)? ?(?:MB|kB|bytes|s\b)", "SIZE"),
    (r"\b\d+ (wheels?|layers?|steps?)\b", "N"),
    (r"^(  wheels +)\d+,", r"\1N,"),
)


def steps() -> list[tuple[str, list[str]]]:
    """The page's commands, each with the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", (DOCS / "tutorial.md").read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


_TRIMMED = re.compile(r"  trimmed | {16}")  # the index of this test has no wheel with something to trim


def normalised(line: str) -> str:
    """A line without what differs from machine to machine."""
    for pattern, text in _VARIES:
        line = re.sub(pattern, text, line, flags=re.MULTILINE)
    return line.rstrip()


def split(lines: list[str]) -> tuple[list[str], set[str]]:
    """Results, notes and warnings in their order; progress without one."""
    plain = [normalised(line) for line in lines if not _TRIMMED.match(line)]
    return [line for line in plain if not line.startswith("[")], {line for line in plain if line.startswith("[")}


@dataclass
class Newcomer:
    """A machine with imgtool, an index and a registry, and a shell on it."""

    folder: Path
    environ: dict[str, str]

    def run(self, command: str, *, stderr: int = subprocess.STDOUT) -> str:
        """What a command prints; changes the folder for `cd`."""
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
            return ""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
        )
        assert done.returncode in {0, 3, 10} if "--json" in command else done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    index = SimpleIndex()
    for wheel in small_wheels():
        index.add(wheel.name.split("-")[0].replace("_", "-"), wheel.name, wheel.read_bytes())
    project = Project(tmp_path_factory.mktemp("newcomer"))
    with run_registry(tmp_path_factory.mktemp("registry")) as registry, serving(index):
        put_base(registry.host)
        environ = {
            **project.env,
            "UV_INDEX_URL": index.url,
            "IMGTOOL_REGISTRY": "us-central1-docker.pkg.dev/my-project/training",
            "IMGTOOL_MIRRORS": f"docker.io={registry.host}",
            "IMGTOOL_INSECURE_REGISTRIES": f"us-central1-docker.pkg.dev,{registry.host}",
            "HTTP_PROXY": f"http://{registry.host}",  # which answers for every host's name
            "NO_PROXY": "127.0.0.1",
        }
        yield Newcomer(project.folder, environ)


def test_the_tutorial_prints_what_it_says(newcomer: Newcomer) -> None:
    commands = steps()
    assert [command.split()[1] for command, _ in commands if command.startswith("imgtool")] == [
        *("init", "lock", "show", "push", "push", "push", "config")
    ]
    for command, shown in commands:
        lines, progress = split(newcomer.run(command).splitlines())
        expected, expected_progress = split(shown)
        assert lines == expected, command
        assert expected_progress <= progress, command


@pytest.mark.parametrize(
    "command",
    [
        *("push", "push --dry-run", "build --output oci:layout", "build --push --dry-run", "show"),
        *("show --why --set compression=zstd", "lock", "lint tags.yaml", "doctor", "prune --dry-run", "verify"),
        *("compat 2.15", "compat", "compat jax"),
    ],
)
def test_what_a_verb_prints_fits_its_schema(newcomer: Newcomer, command: str) -> None:
    """Runs in the tutorial's project, after it; integration tests do the same for `run`, `sign` and `submit`."""
    job = (newcomer.folder / "config.yaml").read_text()
    (newcomer.folder / "tags.yaml").write_text(re.sub(r"@sha256:[0-9a-f]+", ":latest", job))
    if command.startswith(("verify", "show --why")):  # the test that pushes may have run in another process
        newcomer.run("imgtool push")
    out = newcomer.run(f"imgtool {command} --json", stderr=subprocess.DEVNULL)
    assert json.loads(out)["schema"] == 1
    assert "error" not in json.loads(out)
    check_output([*command.split(), "--json"], out)


@pytest.mark.parametrize("verb", [verb for verb, options in verbs().items() if "--json" in options])
def test_what_a_verb_prints_when_it_fails_fits_its_schema(verb: str, tmp_path: Path) -> None:
    (tmp_path / "image.yaml").write_text("name: [x]\n")
    words = [verb, *{"lint": ["none"], "compat": ["9"], "prune": ["--unused-for", "x"]}.get(verb, []), "--json"]
    done = subprocess.run([IMGTOOL, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["ok"]) in {(2, 1, False), (3, 1, False)}
    assert verb == "doctor" or document["error"]["code"] == done.returncode
    check_output(words, done.stdout)


def test_the_schema_has_room_for_every_part_of_a_run() -> None:
    summary = replace(SUCCESS, deaths=(KILLED,), missed=(Kill(role=Role.WORKER, index=0, seconds=99),), notes=("a",))
    check_document("run", {"schema": 1, **as_data(summary)})
    with pytest.raises(AssertionError, match="more"):
        check_document("run", {"schema": 1, **as_data(summary), "more": 1})
