"""Our reading of Dockerfiles, contexts and .dockerignore against a real Docker Engine's."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.dockerfile.test_render import NASTY
from training_imgtool.context.context import Context, scan
from training_imgtool.context.entries import Kind
from training_imgtool.dockerfile.evaluate import evaluate
from training_imgtool.dockerfile.jinja import quote
from training_imgtool.dockerfile.parse import parse

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    import docker

    engine = docker.from_env()
    yield engine
    engine.close()


def build(client: Any, dockerfile: str, context: Context | None = None) -> Any:
    """Builds and gives the image; it is removed by `removed`. An image of the cache could be removed meanwhile."""
    stream = io.BytesIO()
    (context or Context()).with_bytes("Dockerfile", dockerfile.encode()).write_tar(stream)
    stream.seek(0)
    image, _ = client.images.build(fileobj=stream, custom_context=True, rm=True, forcerm=True, nocache=True)
    return image


@pytest.fixture
def removed(client: Any) -> Iterator[list[Any]]:
    images: list[Any] = []
    yield images
    for image in images:
        client.images.remove(image.id, force=True)


def config_of(image: Any) -> dict[str, Any]:
    config: dict[str, Any] = image.attrs["Config"]
    return config


def test_values_arrive_byte_for_byte(client: Any, removed: list[Any]) -> None:
    pairs = {f"V{number}": value for number, value in enumerate(NASTY)}
    lines = " \\\n    ".join(f"{name}={quote(value)}" for name, value in pairs.items())
    image = build(client, f"FROM scratch\nENV {lines}\nLABEL {lines}\n")
    removed.append(image)
    config = config_of(image)
    found = dict(entry.split("=", 1) for entry in config["Env"])
    assert {name: found[name] for name in pairs} == pairs
    assert config["Labels"] == pairs


FORMS = r"""# escape=\
ARG G=global
FROM scratch
ARG G
ARG L=$G-l
ENV PATH=/bin A=1 B="two words" C='$A' D=$A E=a\ b F="a\"b\\c\$d\x" H=${NO:-d} I=${A:+s} J=${NO:+s} K=${L}
ENV OLD  a b  "c"
ENV A=2 N=$A
ENV O=$A P="$A'$A'" Q='a'"b"c R=\$A S="\\" T=$ U=x$-y V= W="" X='"' Y="'" Z=${A}b
LABEL "x y"="a b" z=$A 'q'=q \
    # a comment

    last=1
WORKDIR /w
WORKDIR rel/$A
EXPOSE 80 443/udp $A
VOLUME /v1 "/v$A"
USER u$A:g
STOPSIGNAL SIG$NO
"""


def test_variables_and_quotes_are_the_engines(client: Any, removed: list[Any]) -> None:
    text = FORMS.replace("SIG$NO", "SIG${NO:-INT}")
    image = build(client, text)
    removed.append(image)
    config = config_of(image)
    file = parse(text)
    steps = evaluate(file, file.stages[0], {})
    env: dict[str, str] = {}
    labels: dict[str, str] = {}
    for step in steps:
        env |= dict(step.pairs) if step.name == "ENV" else {}
        labels |= dict(step.pairs) if step.name == "LABEL" else {}
    words = {name: [step.words for step in steps if step.name == name] for name in ("WORKDIR", "USER", "STOPSIGNAL")}
    assert dict(entry.split("=", 1) for entry in config["Env"]) == env
    assert config["Labels"] == labels
    assert config["WorkingDir"] == "/w/rel/2"
    assert words["WORKDIR"] == [("/w",), ("rel/2",)]
    assert (config["User"],) == words["USER"][0]
    assert (config["StopSignal"],) == words["STOPSIGNAL"][0]
    exposed = next(step.words for step in steps if step.name == "EXPOSE")
    assert set(config["ExposedPorts"]) == {word if "/" in word else f"{word}/tcp" for word in exposed}
    assert set(config["Volumes"]) == set(next(step.words for step in steps if step.name == "VOLUME"))


@pytest.mark.parametrize(
    ("line", "json"),
    [
        ('CMD ["a", "b c", "é\\u00e9"]', True),
        ("CMD a $X 'b'", False),
        ("CMD ['a']", False),
        ("CMD [a]", False),
        ('CMD   [ "a" , "b" ]  ', True),
        ("CMD a \\\n  b \\\n# c\n  d", False),
    ],
)
def test_json_and_shell_forms(client: Any, removed: list[Any], line: str, json: bool) -> None:
    text = f"FROM scratch\nENV A=1\n{line}\n"
    image = build(client, text)
    removed.append(image)
    instruction = parse(text).stages[0].instructions[-1]
    assert (instruction.json is not None) is json
    expected = list(instruction.json) if instruction.json else ["/bin/sh", "-c", instruction.text]
    assert config_of(image)["Cmd"] == expected


def files_of(client: Any, image: Any) -> set[str]:
    """The paths of files and links in an image."""
    container = client.containers.create(image.id, command="x")
    try:
        data = b"".join(container.export())
    finally:
        container.remove()
    made_by_docker = {".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab", "dev/console"}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = {member.name for member in archive if not member.isdir()}
    return names - made_by_docker


def tree(root: Path) -> Path:
    names = "a.txt b.md c.py d/a.txt d/b.md d/e/a.txt d/e/f.py .hidden .env2 x/keep/y x/drop/y README.md docs/README.md"
    for name in names.split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "link").symlink_to("d/a.txt")
    return root


SOURCES = ("a.txt", "d/", "d", "*.txt", "d/*", "?.md", "[ab].*", "**/a.txt", "x/*/y", ".", "/d/e", "./d/e/")


def test_what_copy_takes(client: Any, removed: list[Any], tmp_path: Path) -> None:
    context = scan(tree(tmp_path))
    copies = [f"COPY {source} /to{number}/\n" for number, source in enumerate(SOURCES)]
    image = build(client, f"FROM scratch\n{''.join(copies)}", context)
    removed.append(image)
    found = files_of(client, image)
    for number, source in enumerate(SOURCES):
        chosen = {one.path for one in context.select((source,)).entries if one.kind is not Kind.DIRECTORY}
        copied = {Path(path).name for path in found if path.startswith(f"to{number}/")}
        assert copied - {"Dockerfile"} == {Path(path).name for path in chosen}, source


IGNORES = [
    "",
    "*.txt\n",
    "**/*.txt\n",
    "d\n",
    "/d/\n",
    "d/*\n!d/e\n",
    "*\n!d\n!README.md\n",
    "*\n!d/e/f.py\n",
    "x\n!x/keep\n",
    "# comment\n\n  *.md  \n!README*.md\n",
    "**/README.md\n!docs/README.md\n",
    "d/**\n!d/e/a.txt\n",
    "x/../d\r\n*.py\r\n",
    ".*\n",
    "d\n!d/e\nd*\n",
    "?.md\n[a-b].txt\n",
    "**\n!a.txt\n",
    "**/e\n",
    "link\n",
    "!a.txt\na.txt\n",
    "d/e/../b.md\n",
    "\\*.txt\n",
]


@pytest.mark.long
def test_dockerignore_is_dockers(client: Any, removed: list[Any], tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("no docker command: the Engine's client reads .dockerignore, docker-py has a reading of its own")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM scratch\nCOPY . /\n")
    command = [docker, "build", "--quiet", "--no-cache", "--file", str(dockerfile)]
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}

    def files_by(number: int) -> tuple[set[str], set[str]]:
        root = tree(tmp_path / f"context{number}")
        (root / ".dockerignore").write_text(IGNORES[number], newline="")
        done = subprocess.run([*command, root], capture_output=True, text=True, check=True, env=environment)
        image = client.images.get(done.stdout.strip())
        removed.append(image)
        ours = {one.path for one in scan(root).entries if one.kind is not Kind.DIRECTORY}
        return files_of(client, image), ours

    with ThreadPoolExecutor(4) as pool:
        for patterns, (theirs, ours) in zip(IGNORES, pool.map(files_by, range(len(IGNORES))), strict=True):
            assert theirs == ours, patterns
