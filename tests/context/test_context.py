"""The files of a context: its tar, its digest, what COPY selects, and the git tree of a folder."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from training_imgtool.context import scan as scanning
from training_imgtool.context.context import Context, scan
from training_imgtool.context.tar import MTIME
from training_imgtool.core.errors import InputError, VerificationError


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


def test_what_imgtool_puts_in_is_taken_by_name_only(folder: Path) -> None:
    (folder / "wheels").mkdir()
    (folder / "wheels" / "mine").write_text("")
    plain = scan(folder)
    context = plain.with_known("wheels/cpu/w.whl", sha256="0" * 64, size=5).with_bytes("wheels/cpu/r.txt", b"r")
    for source in (".", "*", "wh*", "w*/*", "wheels/mine", "./"):
        assert context.select((source,)).paths() == plain.select((source,)).paths(), source
    assert "wheels/cpu/w.whl" in context.select(("wheels/cpu/",)).paths()
    with pytest.raises(InputError):
        context.select(("wheels/*/*.whl",))


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


def test_a_race_never_gives_another_files_bytes(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"TOPSECRET")
    path = folder / "trainer" / "task.py"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            path.unlink(missing_ok=True)
            path.symlink_to(secret)
            path.unlink()
            path.write_bytes(b"print(1)\n")

    racer = threading.Thread(target=swap)
    racer.start()
    try:
        for _ in range(60):
            try:
                data = tar_of(scan(folder, only=("trainer/__init__.py", "trainer/data"))) + tar_of(scan(folder))
            except InputError as error:
                assert "task.py" in str(error)  # noqa: PT017 - either outcome is right, wrong bytes are not
            else:
                assert b"TOPSECRET" not in data
    finally:
        stop.set()
        racer.join()


def test_select_follows_copy(folder: Path) -> None:
    context = scan(folder)
    assert context.select(("/trainer/data/",)).paths() == ("trainer", "trainer/data", "trainer/data/a.csv")
    assert context.select(("trainer/*.py",)).paths() == ("trainer", "trainer/__init__.py", "trainer/task.py")
    assert context.select(("trainer/d*",)).paths() == ("trainer", "trainer/data", "trainer/data/a.csv")
    assert context.select(("**/task.py",)).paths() == ("trainer", "trainer/task.py")
    assert context.select((".",)) == context
    with pytest.raises(InputError):
        context.select(("**/a.csv",))  # two levels down: `**` is `*` to COPY


def test_files_known_by_hash(folder: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(b"wheel")
    sha256 = hashlib.sha256(b"wheel").hexdigest()
    context = scan(folder).with_known("wheels/cpu/w.whl", sha256=sha256, size=5).with_bytes("wheels/cpu/r.txt", b"r")
    assert context.select(("wheels/cpu/",)).paths() == ("wheels", "wheels/cpu", "wheels/cpu/r.txt", "wheels/cpu/w.whl")
    with pytest.raises(VerificationError, match="its bytes are not on this machine"):
        tar_of(context)
    located = context.with_files({"wheels/cpu/w.whl": wheel})
    assert located.digest() == context.digest()
    with tarfile.open(fileobj=io.BytesIO(tar_of(located))) as archive:
        member = archive.extractfile("wheels/cpu/w.whl")
        assert member is not None
        assert member.read() == b"wheel"
    wheel.write_bytes(b"weehl")
    with pytest.raises(VerificationError, match=r"not the bytes of wheels/cpu/w\.whl"):
        tar_of(located)
    with pytest.raises(InputError, match=r"imgtool puts wheels/cpu/r\.txt"):
        context.with_bytes("wheels/cpu/r.txt", b"")


def test_the_digest_sees_every_byte_mode_and_name(folder: Path) -> None:
    def change_byte() -> None:
        (folder / "trainer/task.py").write_bytes(b"print(2)\n")

    def change_mode() -> None:
        (folder / "trainer/task.py").chmod(0o755)

    def change_link() -> None:
        (folder / "trainer/link").unlink()
        (folder / "trainer/link").symlink_to("task.py")

    def change_name() -> None:
        (folder / "trainer/task.py").rename(folder / "trainer/job.py")

    def add_folder() -> None:
        (folder / "trainer/empty").mkdir()

    seen = {scan(folder).digest(("trainer/",))}
    for count, change in enumerate((change_byte, change_mode, change_link, change_name, add_folder), 2):
        change()
        seen.add(scan(folder).digest(("trainer/",)))
        assert len(seen) == count
    (folder / "other.txt").write_bytes(b"new")
    assert scan(folder).digest(("trainer/",)) in seen


def test_the_memo_saves_reading_and_is_not_fooled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes: dict[str, str] = {}
    for path in folder.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    monkeypatch.setattr(scanning, "_RACY_NS", -1)
    first = scan(folder, hashes=hashes)
    assert len(hashes) == 5
    calls: list[str] = []
    real = scanning.Walk._hash

    def counted(self: scanning.Walk, opened: int, path: str, before: os.stat_result) -> str:
        calls.append(path)
        return real(self, opened, path, before)

    monkeypatch.setattr(scanning.Walk, "_hash", counted)
    assert scan(folder, hashes=hashes) == first
    assert calls == []
    (folder / "trainer/task.py").write_bytes(b"print(3)\n")
    assert scan(folder, hashes=hashes) != first
    assert calls == ["trainer/task.py"]


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
