"""What a scan of a folder takes and refuses: links, special files, names, secrets, files that change meanwhile."""

from __future__ import annotations

import hashlib
import os
import socket
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.other_user import as_nobody, open_folder
from training_imgtool.base import system
from training_imgtool.base.context import scan as scanning
from training_imgtool.base.context.context import Context, leads_through_link, scan
from training_imgtool.base.context.dockerignore import DockerIgnore
from training_imgtool.base.errors import InputError


def test_scan_takes_what_is_wanted(folder: Path) -> None:
    context = scan(folder, only=("trainer",))
    assert context.paths() == (
        "trainer",
        "trainer/__init__.py",
        "trainer/data",
        "trainer/data/a.csv",
        "trainer/link",
        "trainer/run.sh",
        "trainer/task.py",
    )
    assert context.entry("trainer/run.sh").mode == 0o755
    assert context.entry("trainer/task.py").mode == 0o644
    assert context.entry("trainer/task.py").sha256 == hashlib.sha256(b"print(1)\n").hexdigest()
    assert context.entry("trainer/link").target == "data/a.csv"
    assert "other.txt" in scan(folder).paths()


def described(context: Context) -> str:
    """All of the entries that an image depends on."""
    return repr([(one.path, one.kind, one.mode, one.size, one.sha256, one.target) for one in context.entries])


def test_compiled_code_and_git_never_count(folder: Path) -> None:
    before = described(scan(folder))
    for path in ("trainer/__pycache__/task.pyc", "trainer/old.pyc", ".git/config", "trainer/.git"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(b"x")
    assert described(scan(folder)) == before


def test_a_cache_folder_counts_where_the_spec_names_it_only(folder: Path) -> None:
    (folder / "cache").mkdir()
    (folder / "cache/CACHEDIR.TAG").write_bytes(b"")
    assert not [path for path in scan(folder).paths() if path.startswith("cache")]
    assert scan(folder, only=("cache",)).paths() == ("cache", "cache/CACHEDIR.TAG")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "../..", "data/../../../x"])
def test_a_link_that_leaves_the_context(folder: Path, target: str) -> None:
    (folder / "trainer" / "bad").symlink_to(target)
    with pytest.raises(InputError, match="trainer/bad: a symbolic link to") as caught:
        scan(folder)
    assert caught.value.exit_code == 3


def test_links_are_never_followed(folder: Path) -> None:
    (folder / "trainer" / "dangling").symlink_to("nowhere")
    (folder / "trainer" / "loop").symlink_to("loop")
    (folder / "trainer" / "dir").symlink_to("data")
    paths = scan(folder).paths()
    assert "trainer/dir" in paths
    assert "trainer/dir/a.csv" not in paths


def test_a_linked_source_is_what_it_leads_to(folder: Path) -> None:
    (folder / "code").symlink_to("trainer/data")
    (folder / "again").symlink_to("code")
    (folder / "loop").symlink_to("loop")
    (folder / "gone").symlink_to("nowhere")
    context = scan(folder)
    assert context.resolve("again/a.csv") == "trainer/data/a.csv"
    assert context.resolve("gone") == "nowhere"
    with pytest.raises(InputError, match="leads back to itself"):
        context.resolve("loop")
    assert leads_through_link(folder, "again/a.csv")
    assert not leads_through_link(folder, "trainer/data")


def test_special_files_are_named(folder: Path) -> None:
    os.mkfifo(folder / "trainer" / "pipe")
    with pytest.raises(InputError, match="trainer/pipe: a FIFO"):
        scan(folder)
    (folder / "trainer" / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s"))
        with pytest.raises(InputError, match=r"^s: a socket"):
            scan(folder)


@pytest.mark.parametrize("name", ["trainer/.wh.task.py", "sub/.wh..wh..opq", ".wh.folder/x"])
def test_a_name_that_deletes_another_file_from_an_image(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).touch()
    with pytest.raises(InputError, match="deletes another file") as caught:
        scan(folder)
    assert ".dockerignore" in (caught.value.hint or "")
    (folder / ".dockerignore").write_text("**/.wh.*\n")
    assert not [path for path in scan(folder).paths() if ".wh." in path]


@pytest.mark.parametrize("name", [b"a\nb", b"a\xffb", "a\u2028b".encode(), b"a\x1bb"])
def test_names_that_no_one_can_read(folder: Path, name: bytes) -> None:
    (Path(os.fsdecode(os.fsencode(folder) + b"/" + name))).write_bytes(b"x")
    with pytest.raises(InputError, match="a name in an image must be UTF-8") as caught:
        scan(folder)
    assert str(caught.value).isprintable()


def test_accents_are_composed_on_a_mac(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HFS+ lists them apart: patterns and keys would not be those of the same files on Linux."""
    for name in ("privé.csv", "données.csv"):
        (folder / name).touch()
    (folder / ".dockerignore").write_text("privé.csv\n")
    here, listdir = scan(folder), os.listdir
    monkeypatch.setattr(os, "listdir", lambda place: [unicodedata.normalize("NFD", name) for name in listdir(place)])
    monkeypatch.setattr(system, "sys", SimpleNamespace(platform="darwin"))
    assert "données.csv" in here.paths()
    assert described(scan(folder)) == described(here)


def test_limits_are_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "MOST_ENTRIES", 3)
    with pytest.raises(InputError, match="more than 3 entries or 4 GiB"):
        scan(folder)
    monkeypatch.setattr(scanning, "MOST_ENTRIES", 100)
    monkeypatch.setattr(scanning, "MOST_BYTES", 10)
    with pytest.raises(InputError, match="more than 100 entries"):
        scan(folder)


def test_a_file_that_nobody_may_read() -> None:
    with open_folder() as root:
        (root / "trainer").mkdir()
        (root / "trainer" / "hidden.txt").write_text("x")
        (root / "trainer" / "hidden.txt").chmod(0)

        def message() -> str:
            try:
                scan(root)
            except InputError as error:
                return f"{error} {error.exit_code}"
            return "read"

        assert as_nobody(message) == "trainer/hidden.txt: cannot be read: Permission denied 3"


def test_another_user_gets_the_same_digest() -> None:
    with open_folder() as root:
        (root / "trainer").mkdir()
        (root / "trainer" / "task.py").write_text("x")
        assert as_nobody(lambda: described(scan(root))) == described(scan(root))


def test_dockerignore_of_the_folder(folder: Path) -> None:
    (folder / ".dockerignore").write_text("trainer/*\n!trainer/data\n!trainer/task.py\n*.txt\n.dockerignore\n")
    assert scan(folder).paths() == ("trainer", "trainer/data", "trainer/data/a.csv", "trainer/task.py")
    assert "other.txt" in scan(folder, ignore=DockerIgnore()).paths()
    (folder / ".dockerignore").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8 at byte 0"):
        scan(folder)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_dockerignore_that_is_no_file(folder: Path, kind: str) -> None:
    path = folder / ".dockerignore"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(InputError, match=r"\.dockerignore: (not a file|a symbolic link|cannot be read)"):
        scan(folder)


def test_secrets_are_refused_all_at_once(folder: Path) -> None:
    key = '{"type": "service_account", "private_key": "x"}'
    (folder / "trainer" / ".env").write_text("A=1")
    (folder / "trainer" / "innocent.json").write_text(key)
    (folder / "ca.pem").write_text("")
    with pytest.raises(InputError, match="3 files look like secrets") as caught:
        scan(folder)
    assert all(name in str(caught.value) for name in ("trainer/.env", "trainer/innocent.json", "ca.pem"))
    assert "private_key" not in str(caught.value)
    context = scan(folder, allow_secrets=("ca.pem", "trainer/innocent.json", "trainer/.env*"))
    assert "trainer/innocent.json" in context.paths()
