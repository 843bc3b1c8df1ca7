"""Names, numbers and dates that some engine or runtime refuses, or reads otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project
from training_imgtool.base.errors import InputError, UsageError
from training_imgtool.base.image_limits import find_mount_fault, find_path_fault, find_user_fault
from training_imgtool.base.settings import from_environment
from training_imgtool.model.load import load

DEEP = "/".join(["d" * 255] * 15)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/opt/.wh.venv", "deletes another file"),
        ("/etc/.wh..wh..opq", "deletes"),
        ("/srv/.wh.", "deletes"),
        ("/.wh.x/y", "deletes"),
        ("/srv/.wh", None),
        ("/srv/a.wh.b", None),
        (f"/srv/{'a' * 255}", None),
        (f"/srv/{'a' * 256}", "255 bytes"),
        (f"/srv/{'é' * 128}", "255 bytes"),
        (f"{DEEP[:3839]}", None),
        (f"/{DEEP}", "3839 bytes"),
    ],
)
def test_paths(path: str, says: str | None) -> None:
    fault = find_path_fault(path)
    assert (fault is None) if says is None else (says in str(fault))


@pytest.mark.parametrize(
    "path",
    [
        *("/", "//", "/opt", "/opt/", "/opt/venv", "/opt/venv/lib", "/app", "/usr", "/usr/local", "/usr/bin", "/proc"),
        *("/proc/x", "/sys/fs", "/x/../y", "/x/./y", "/x//y", "/bin", "/etc", "/dev", "/lib", "//usr", "/var", "/.."),
        f"/mnt/{'a' * 256}",
    ],
)
def test_mounts_that_hide_the_image(path: str) -> None:
    assert find_mount_fault(path)


@pytest.mark.parametrize(
    "path", ["/data", "/mnt/x/", "/dev/shm", "/app/data", "/root", "/tmp", "/opt/data", "/usr/share/x", "/etc/app"]
)
def test_mounts_beside_the_image(path: str) -> None:
    assert find_mount_fault(path) is None


@pytest.mark.parametrize(
    ("user", "fine"),
    [
        *(("0", True), ("2147483647", True), ("2147483648", False), ("99999999999", False), ("1:2147483648", False)),
        *(("daemon:2147483647", True), ("user2147483648", True), ("0002147483648", False)),
    ],
)
def test_users(user: str, fine: bool) -> None:
    assert (find_user_fault(user) is None) is fine


def test_dates() -> None:
    assert from_environment({"SOURCE_DATE_EPOCH": "8589934591"}).source_date_epoch == (1 << 33) - 1
    with pytest.raises(UsageError, match="at most 8589934591"):
        from_environment({"SOURCE_DATE_EPOCH": "8589934592"})


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("files: {one: /opt/.wh.venv}\n", "deletes another file"),
        (f"files: {{one: /srv/{'a' * 256}}}\n", "255 bytes"),
        ('user: "2147483648"\n', "highest number"),
        ("volumes: [{mount: /opt, claim: data}]", "hide /opt/venv"),
    ],
)
def test_a_spec_names_the_line(tmp_path: Path, more: str, says: str) -> None:
    project = Project(tmp_path)
    project.write("one", "1")
    is_job = more.startswith("volumes")
    project.spec(SPEC.replace("job:\n", f"job:\n  {more}\n") if is_job else SPEC + more, lock=False)
    with pytest.raises(InputError) as caught:
        load(project.folder / "image.yaml")
    assert says in str(caught.value)
    assert "image.yaml:" in str(caught.value)


def test_a_file_of_a_folder_gets_too_long_a_path(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write(f"one/{'/'.join(['e' * 200] * 10)}/x", "1")
    project.spec(f"{SPEC}files: {{one: /srv/{'/'.join(['d' * 200] * 10)}}}\n")
    ended = project.run("push", "--locked", "--registry", "127.0.0.1:9/x")
    assert (ended.code, "3839 bytes" in ended.err) == (3, True), ended.err
