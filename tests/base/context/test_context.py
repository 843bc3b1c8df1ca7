"""The files of a context: its tar, its digest, what COPY selects, and the git tree of a folder."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from training_imgtool.base.context import scan as scanning
from training_imgtool.base.context.code_folders import CodeFolders
from training_imgtool.base.context.context import Context, scan
from training_imgtool.base.context.tar import MTIME
from training_imgtool.base.errors import InputError


def tar_of(context: Context, mtime: int = MTIME) -> bytes:
    stream = io.BytesIO()
    context.write_tar(stream, mtime)
    return stream.getvalue()


def test_the_tar_is_the_same_for_any_time_owner_and_mode(folder: Path, tmp_path: Path) -> None:
    first = tar_of(scan(folder))
    copy = tmp_path / "elsewhere"
    subprocess.run(["cp", "-r", "--preserve=links", str(folder), str(copy)], check=True)
    for path in copy.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (5, 5))
            path.chmod(path.stat().st_mode | 0o022)
    assert tar_of(scan(copy)) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        members = archive.getmembers()
        assert {(m.uid, m.gid, m.uname, m.mtime) for m in members} == {(0, 0, "", MTIME)}
        assert [m.name for m in members] == list(scan(folder).paths())
        link = archive.getmember("trainer/link")
        assert (link.issym(), link.linkname) == (True, "data/a.csv")
    assert tar_of(scan(folder), mtime=86400) != first


def test_a_link_to_the_folder_is_the_folder(folder: Path, tmp_path: Path) -> None:
    (folder / ".dockerignore").write_text("*.log\n")
    (folder / "run.log").write_text("not taken\n")
    (tmp_path / "link").symlink_to(folder)
    assert tar_of(scan(tmp_path / "link")) == tar_of(scan(folder))


def test_long_and_foreign_names(folder: Path) -> None:
    name = "ü" * 120
    deep = "/".join(["d" * 60] * 4)
    (folder / "trainer" / name).write_bytes(b"x")
    (folder / "trainer" / deep).mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(tar_of(scan(folder)))) as archive:
        assert f"trainer/{name}" in archive.getnames()
        assert f"trainer/{deep}" in archive.getnames()


@pytest.mark.parametrize("change", ["grow", "shrink", "same size", "vanish", "link"])
def test_a_file_that_changes_after_the_scan(folder: Path, change: str) -> None:
    path = folder / "trainer" / "task.py"
    os.utime(path, ns=(10**18, 10**18))
    context = scan(folder)
    if change in {"vanish", "link"}:
        path.unlink()
    if change == "link":
        path.symlink_to("/etc/passwd")
    if change in {"grow", "shrink", "same size"}:
        path.write_bytes({"grow": b"print(100)\n", "shrink": b"", "same size": b"print(2)\n"}[change])
        os.utime(path, ns=(10**18, 10**18))
    with pytest.raises(InputError, match=r"changed while reading: trainer/task\.py"):
        tar_of(context)


def test_a_folder_swapped_for_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    context = scan(folder)
    outside = tmp_path / "outside"
    (folder / "trainer").rename(outside)
    (folder / "trainer").symlink_to(outside)
    with pytest.raises(InputError, match="changed while reading"):
        tar_of(context)


def test_young_files_are_not_remembered(folder: Path) -> None:
    hashes: dict[str, str] = {}
    scan(folder, hashes=hashes)
    assert hashes == {}


def test_a_memo_does_not_hide_a_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_RACY_NS", -1)
    (folder / "sa.json").write_text('{"type": "service_account"}')
    hashes: dict[str, str] = {}
    scan(folder, allow_secrets=("sa.json",), hashes=hashes)
    with pytest.raises(InputError, match="1 file looks like a secret"):
        scan(folder, hashes=hashes)


def test_tree_id_is_gits(folder: Path) -> None:
    (folder / "trainer" / "data.d").mkdir()
    (folder / "trainer" / "data.d" / "x").write_bytes(b"sorts between")
    (folder / "trainer" / "data-x").write_bytes(b"and so does this")
    (folder / "trainer" / "empty").mkdir()
    git = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "m"], check=True)

    def rev(what: str) -> str:
        return subprocess.run([*git, "rev-parse", what], check=True, capture_output=True, text=True).stdout.strip()

    context = scan(folder)
    assert context.tree_id("trainer") == rev("HEAD:trainer")
    assert context.tree_id("trainer/data/") == rev("HEAD:trainer/data")
    assert context.tree_id(".") == rev("HEAD^{tree}")
    with pytest.raises(InputError, match="not a folder"):
        context.tree_id("other.txt")


def test_a_spec_below_a_linked_folder_has_its_code(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    folders = CodeFolders(spec=link / "image.yaml", top=link, paths=("trainer",), allow_secrets=(), hashes={})
    assert folders.read_all().paths() == scan(folder).paths()
