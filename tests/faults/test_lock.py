"""Y16, E9, C12 and what an index can do to `imgtool lock`; the index is on loopback, the registry real."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.faults.base import base_image
from tests.faults.project import CANARY, SPEC, Project
from tests.integration.push_world import BASE_TAG
from tests.servers.simple_index import SimpleIndex, serving, tiny_wheel

pytestmark = pytest.mark.registry

WITH_REQUIREMENTS = SPEC + "requirements: requirements.txt\n"


@pytest.fixture
def index() -> Iterator[SimpleIndex]:
    """An index with a TensorFlow that needs nothing, and packages that do not go together."""
    index = SimpleIndex()
    for name, version, requires in (
        ("pip", "24.3.1", ()),
        ("tensorflow_cpu", "2.15.1", ()),
        ("dumb_init", "1.2.5.post1", ()),
        ("alpha", "1.0", ("beta<2",)),
        ("beta", "1.0", ()),
        ("beta", "2.0", ()),
    ):
        project = name.replace("_", "-")
        index.add(project, f"{name}-{version}-py3-none-any.whl", tiny_wheel(name, version, requires=requires))
    with serving(index):
        yield index


@pytest.fixture
def locking(pushing: Project, index: SimpleIndex) -> Project:
    """A project that asks that index, and has no requirements yet."""
    pushing.env["UV_INDEX_URL"] = index.url
    pushing.write("requirements.txt", "alpha\n")
    pushing.spec(WITH_REQUIREMENTS, lock=False)
    return pushing


def lock_text(project: Project) -> str:
    """What image.lock says now."""
    return (project.folder / "image.lock").read_text()


def test_e09_a_base_tag_that_moves(pushing: Project, registry_host: str) -> None:
    """What is locked is built, whatever the tag says meanwhile."""
    before = pushing.images(pushing.run("push"))
    replace(base_image(), manifest=base_image().manifest + b"\n").put(registry_host)
    try:
        pushing.env["IMGTOOL_REGISTRY"] += "again"
        after = pushing.images(pushing.run("push", "--locked"))
    finally:
        base_image().put(registry_host)
    assert [name.partition("@")[2] for name in after.values()] == [name.partition("@")[2] for name in before.values()]


@pytest.mark.parametrize(
    "place", ["beside", *(pytest.param(place, marks=pytest.mark.long) for place in ("above", "pyproject"))]
)
def test_two_checkouts_lock_the_same(locking: Project, place: str) -> None:
    """One of them has settings of uv that the spec does not name: another index, and the lowest versions."""
    locking.write("requirements.txt", "beta\n")
    assert locking.run("lock").code == 0
    expected = lock_text(locking)
    assert '"beta", version = "2.0"' in expected
    lines = 'index-url = "http://127.0.0.1:9/simple"\nresolution = "lowest"\n'
    if place == "pyproject":
        locking.write("pyproject.toml", f"[tool.uv]\n{lines}override-dependencies = ['beta==1.0']\n")
    else:
        (locking.folder if place == "beside" else locking.root).joinpath("uv.toml").write_text(lines)
    locking.env["UV_NO_CACHE"] = "1"
    assert locking.run("lock", "--locked").code == 0
    assert locking.run("lock", "--upgrade").code == 0
    assert lock_text(locking) == expected


def test_no_variable_of_the_machine_is_sent_where_the_project_says(locking: Project, index: SimpleIndex) -> None:
    """A canary is in every variable, and the project's text names each of them wherever a host is asked."""
    tokens = ("AWS_SECRET_ACCESS_KEY", "COSIGN_PASSWORD", "SIGSTORE_ID_TOKEN", "GITHUB_TOKEN", "UV_INDEX_X_PASSWORD")
    locking.env |= {name: f"{CANARY}-{name}" for name in tokens}
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = threading.Thread(target=_record, args=(server, heard))
        listener.start()
        host = f"127.0.0.1:{server.getsockname()[1]}"
        for number, form in enumerate(_FORMS):
            named = "".join(form.format(host=host, name=name, number=number) + "\n" for name in (*tokens, "HOME"))
            locking.write("requirements.txt", f"{named}beta\n")
            ended = locking.run("lock")
            assert ended.code in {3, 7, 8}, (form, ended)
            assert CANARY not in ended.out + ended.err
        socket.create_connection(server.getsockname()).close()
        server.shutdown(socket.SHUT_RDWR)
        listener.join()
    assert CANARY.encode() not in heard
    assert str(locking.home).encode() not in heard
    assert CANARY not in str(index.requests)


_FORMS = (
    "--extra-index-url http://{host}/${{{name}}}/simple",
    "--find-links http://u:${{{name}}}@{host}/",
    "p{number} @ http://{host}/${{{name}}}/p{number}-1.0-py3-none-any.whl",
    "p{number} @ git+http://{host}/${{{name}}}.git",
    "-r http://{host}/${{{name}}}.txt",
)


def _record(server: socket.socket, heard: bytearray) -> None:
    """Answers that nothing is there, and keeps what was said, until the server ends."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.settimeout(2)
                heard += connection.recv(65536)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_specs_in_one_folder_have_a_lock_each(locking: Project) -> None:
    """Locking one leaves the other as it is, and `show` writes none."""
    (locking.folder / "image.lock").unlink()
    for name in ("gpu.yaml", "cpu.yml"):
        locking.write(name, WITH_REQUIREMENTS)
    shown = locking.run("show", "gpu.yaml")
    assert (shown.code, list(locking.folder.glob("*.lock"))) == (0, []), shown.err
    assert "gpu.lock is missing; `imgtool lock` writes it" in shown.err
    assert locking.run("lock", "gpu.yaml").code == 0
    before = (locking.folder / "gpu.lock").read_bytes()
    locking.write("cpu.yml", WITH_REQUIREMENTS.replace("worker:", "evaluator:", 1))
    assert locking.run("lock", "cpu.yml", "--json").code == 0
    assert (locking.folder / "cpu.lock").exists()
    assert (locking.folder / "gpu.lock").read_bytes() == before
    assert locking.run("show", "gpu.yaml", "--locked").code == 0


@pytest.mark.parametrize("verb", ["lock", "show", "push"])
def test_a_lock_of_another_program_stays(locking: Project, verb: str) -> None:
    foreign = 'version = 1\nrequires-python = ">=3.11"\n\n[[package]]\nname = "numpy"\n'
    (locking.folder / "uv.lock").write_text(foreign)
    (locking.folder / "image.yaml").rename(locking.folder / "uv.yaml")
    locking.refused(verb, "uv.yaml", code=3, says=["uv.lock is a lock of another program"], hint="another name than uv")
    assert (locking.folder / "uv.lock").read_text() == foreign


@pytest.mark.parametrize(
    "damage", ["<<<<<<< HEAD\n", "version = 1\nversion = 2\n", ""], ids=["merge", "twice", "empty"]
)
def test_a_damaged_lock_is_made_anew(locking: Project, damage: str) -> None:
    """As the hint says: by `lock` alone; every other verb refuses it, and so does a lock of a newer imgtool."""
    assert locking.run("lock").code == 0
    good = lock_text(locking)
    (locking.folder / "image.lock").write_text(damage + good if damage else "")
    locking.refused("show", code=3, says=["image.lock: "], hint="imgtool lock writes a new one")
    ended = locking.run("lock")
    assert ended.code == 0, ended.err
    assert "imgtool makes a new one" in ended.err
    assert lock_text(locking) == good


def test_a_registry_of_bases_that_is_not_there(locking: Project) -> None:
    """What is wanted from it is said: the spec does not name it."""
    locking.env["IMGTOOL_MIRRORS"] = "docker.io=mirror.nowhere.invalid"
    says = [
        f"base image mirror.nowhere.invalid/library/python:{BASE_TAG}: the host mirror.nowhere.invalid cannot be found"
    ]
    locking.refused("lock", "--upgrade", code=8, says=says, hint="IMGTOOL_MIRRORS names a registry that has it")


@pytest.mark.parametrize(("verb", "code"), [("show", 0), ("render", 0), ("verify", 8), ("config", 8)])
def test_verbs_that_check_write_no_lock(locking: Project, verb: str, code: int) -> None:
    (locking.folder / "image.lock").unlink()
    locking.env["IMGTOOL_REGISTRY"] = "127.0.0.1:9/x"
    before = sorted(path.name for path in locking.folder.rglob("*"))
    ended = locking.run(verb)
    assert ended.code == code, ended.err
    assert "image.lock is missing; `imgtool lock` writes it" in ended.err
    assert sorted(path.name for path in locking.folder.rglob("*")) == before
