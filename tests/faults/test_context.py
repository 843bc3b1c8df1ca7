"""Group C: what can be wrong with the files that go into an image. Exit 3 with the path; nothing leaves the machine."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.project import NOBODY, SPEC, Project

WITH_REQUIREMENTS = SPEC + "requirements: requirements.txt\n"


def keys(project: Project) -> list[str]:
    """The content keys of the roles."""
    ended = project.run("show", "--json")
    assert ended.code == 0, ended.err
    return [role["key"] for role in ended.document["roles"]]


def refused(project: Project, *says: str, hint: str | None = None) -> None:
    """Both what reads the context first and what would send it refuse."""
    project.refused("show", "--json", code=3, says=says, hint=hint, timeout=20)
    project.refused("push", "--registry", "registry.example.com/x", code=3, says=says, timeout=20)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../home/.docker/config.json", "../../../..", "/"])
def test_c01_links_that_lead_out(project: Project, target: str) -> None:
    (project.folder / "trainer/link").symlink_to(target)
    says = f"trainer/link: a symbolic link to '{target}', which lies outside the build context"
    cure = "copy the target into the context" if target.startswith("/") else "name its target in trainer.include"
    refused(project, says, hint=f"{cure}, or list the link in .dockerignore")
    project.write(".dockerignore", "trainer/link\n")
    assert keys(project)


def test_c01_links_that_stay(project: Project) -> None:
    """They are kept as links: one that leads nowhere, or to itself, is not followed."""
    before = keys(project)
    (project.folder / "trainer/dangling").symlink_to("nothere")
    (project.folder / "trainer/loop").symlink_to("loop")
    assert keys(project) != before


def test_c01_the_trainer_is_a_link(project: Project) -> None:
    (project.folder / "trainer").rename(project.root / "elsewhere")
    (project.folder / "trainer").symlink_to(project.root / "elsewhere")
    project.refused("show", code=3, says=["image.yaml:4:19: trainer.source: ", "symbolic link"])


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "thing")


def unix_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{descriptor}/thing")  # a path of at most 107 bytes
        finally:
            os.close(descriptor)


@pytest.mark.parametrize(("make", "kind"), [(fifo, "a FIFO"), (unix_socket, "a socket")])
def test_c03_no_files(project: Project, make: Callable[[Path], None], kind: str) -> None:
    make(project.folder / "trainer")
    refused(project, f"trainer/thing: {kind} has no place in an image", hint="list it in .dockerignore")


def test_c03_unreadable(project: Project) -> None:
    project.open_to_nobody()
    (project.folder / "trainer/task.py").chmod(0)
    project.refused(
        "show", "--json", code=3, says=["trainer/task.py: cannot be read: Permission denied"], before=NOBODY
    )


def test_c05_a_dockerignore_that_is_a_folder(project: Project) -> None:
    (project.folder / ".dockerignore").mkdir()
    refused(project, ".dockerignore")


@pytest.mark.parametrize(
    "name",
    [".env", "id_rsa", "key.pem", ".netrc", ".pypirc", ".aws/credentials", "application_default_credentials.json"],
)
def test_c06_secrets_by_name(project: Project, name: str) -> None:
    path = project.write(f"trainer/{name}", "x")
    says = f"1 file looks like a secret in the build context: trainer/{name}"
    refused(project, says, hint=".dockerignore")
    project.write("image.yaml", f"{SPEC}allow_secrets: [trainer/{name}]\n")
    assert keys(project)
    path.unlink()


@pytest.mark.parametrize("name", [b"\xff.txt", b"a\nb", b"\x1b]0;owned\x07"])
def test_c08_names(project: Project, name: bytes) -> None:
    path = os.path.join(os.fsencode(project.folder / "trainer"), name)  # noqa: PTH118 - bytes
    os.close(os.open(path, os.O_CREAT))
    refused(project, "a name with control characters, or not UTF-8, has no place in an image")
    os.unlink(path)  # noqa: PTH108


def test_c09_times_and_owners_do_not_matter(project: Project) -> None:
    before = keys(project)
    task = project.folder / "trainer/task.py"
    for seconds in (-5, 1, 1 << 34):
        os.utime(task, (seconds, seconds))
        task.chmod(0o600 if seconds > 1 else 0o664)
        assert keys(project) == before
    task.chmod(0o755)
    assert keys(project) != before


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("numpy\nx @ https://example.com/x-1.0-py3-none-any.whl\n", "requirements.txt:2: a URL", "write ./FILE"),
        ("../x-1.0-py3-none-any.whl\n", "requirements.txt:1: a wheel outside the spec's folder", "beside the spec"),
        ("./libs/x\n", "requirements.txt:1: libs/x: there is no such folder", None),
        ("-e .\n", "requirements.txt:1: .: the folder has no pyproject.toml", "`trainer: {include: [...]}`"),
        (
            "--extra-index-url https://me:hunter2hunter2@x.example.com/\n",
            "requirements.txt:1: a URL with a password",
            "UV_",
        ),
        ("x @ https://me:hunter2hunter2@example.com/x.whl\n", "requirements.txt:1: a URL with a password", None),
        ("numpy\n@@@\n", "requirements.txt:2: '@@@' is not a requirement", None),
        ("-r nothere.txt\n", "nothere.txt: No such file", None),
        ("-r ../../etc/passwd\n", "is outside the spec's folder", "copy it there"),
        ("tensorflow==2.14.0\n", "requirements.txt:1: tensorflow==2.14.0 is not the spec's", "leave the line out"),
    ],
)
def test_c12_requirements(project: Project, text: str, says: str, hint: str | None) -> None:
    project.write("requirements.txt", text)
    project.spec(WITH_REQUIREMENTS, lock=False)
    lock = (project.folder / "image.lock").read_bytes()
    ended = project.refused("lock", "--json", code=3, says=["image.yaml:11:15: requirements: ", says], hint=hint)
    assert "hunter2" not in ended.out + ended.err
    assert (project.folder / "image.lock").read_bytes() == lock


def test_c12_no_requirements(project: Project) -> None:
    project.spec(SPEC + "requirements: nothere.txt\n", lock=False)
    project.refused("lock", code=3, says=["image.yaml:11:15: requirements: there is no 'nothere.txt' next to the spec"])


@pytest.mark.parametrize(
    ("old", "new", "says", "hint"),
    [
        ("source: trainer", "source: trianer", "trainer.source: there is no 'trianer'", "did you mean trainer?"),
        ("source: trainer", "source: /etc", "expected a path inside the spec's folder", None),
        ("source: trainer", "source: image.yaml", "expected a folder or a Python file, found a file", None),
        ("trainer.task", "trainer.tsk", "trainer.module: there is no trainer/tsk.py", "did you mean trainer.task?"),
    ],
)
def test_trainer(project: Project, old: str, new: str, says: str, hint: str | None) -> None:
    project.spec(SPEC.replace(old, new), lock=False)
    project.refused("show", "--json", code=3, says=["image.yaml:4:", says], hint=hint)


def test_secrets_of_a_folder_beside_the_specs(project: Project) -> None:
    project.spec(SPEC.replace("source: trainer", "source: ../home"), lock=False)
    says = "../home: 1 file looks like a secret in the build context: .docker/config.json"
    project.refused("show", "--json", code=3, says=says, hint=".dockerignore")


@pytest.mark.registry
def test_data_beside_the_code_is_pointed_out(pushing: Project) -> None:
    """Once there is something to make; and the bytes that go up are shown as the role's, not the packages'."""
    (pushing.folder / "trainer/weights.bin").write_bytes(bytes(101_000_000))
    note = "101 MB of files go into the images with the code, 101 MB of it trainer/weights.bin; data belongs in"
    dry = pushing.run("push", "--dry-run")
    assert "weights.bin" not in dry.err
    ended = pushing.run("push", "--progress", "json")
    assert ended.code == 0, ended.err
    assert note in ended.err
    events = [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]
    large = [event for event in events if event["event"] == "transfer" and event["done"] > 50_000]
    assert {event["subject"] for event in large} <= {"master", "worker"}
    assert large
    again = pushing.run("push")
    assert "weights.bin" not in again.err


def test_what_imgtool_prints_and_writes_into_a_flat_project_changes_no_image(project: Project) -> None:
    project.write("task.py", "print(1)\n")
    project.spec(SPEC.replace("{source: trainer, module: trainer.task}", "task.py"))
    before = keys(project)
    for name, code, *arguments in (
        ("show.json", 0, "show", "--json"),
        ("page.txt", 0, "show"),
        ("push.txt", 8, "push", "--registry", "127.0.0.1:9/x"),
    ):
        with (project.folder / name).open("w") as out, (project.folder / f"{name}.log").open("w") as err:
            assert project.ended(project.start(*arguments, stdout=out, stderr=err)).code == code
    for name in ("page.txt", "push.txt"):  # a page for people, and what got nothing, have no mark of their own
        (project.folder / name).unlink()
    project.write("gha-creds-8f6d0a1b2c3d4e5f.json", '{"type": "external_account"}')
    assert keys(project) == before
    assert "Error: " in (project.folder / "push.txt.log").read_text()


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_a_dash_is_stdout(project: Project, name: str) -> None:
    ended = project.run("render", "-o", name)
    assert ended.code == 0
    assert ended.out.startswith("#")
    assert not (project.folder / "-").exists()
