"""RECORD against files: what pip writes is no difference."""

from __future__ import annotations

from training_imgtool.verify.inside.venv_files import compare_records

SITE = "opt/venv/lib/python3.11/site-packages"
INFO = f"{SITE}/a-1.dist-info"


def _compare(files: dict[str, tuple[int, str]], record: str, *exclude: str) -> dict[str, list[str]]:
    return compare_records({**files, f"{INFO}/RECORD": (9, "any")}, {f"{INFO}/RECORD": record}, list(exclude))


def test_files_that_pip_writes_are_recorded() -> None:
    record = (
        '../../../bin/a,sha256=S,20\na/__init__.py,sha256=A,1\n"a/x,y.py",sha256=B,2\n'
        "a/__pycache__/__init__.cpython-311.pyc,,\na/__pycache__/b.cpython-311.pyc,sha256=wheel,3\na-1.dist-info/INSTALLER,sha256=I,4\na-1.dist-info/RECORD,,\n"
    )
    files = {
        "opt/venv/bin/a": (20, "S"),
        f"{SITE}/a/__init__.py": (1, "A"),
        f"{SITE}/a/x,y.py": (2, "B"),
        f"{INFO}/INSTALLER": (4, "I"),
        f"{SITE}/a/__pycache__/b.cpython-311.pyc": (4, "compiled again"),
    }
    assert _compare(files, record) == {"missing": [], "changed": [], "unowned": []}


def test_differences() -> None:
    record = "a.py,sha256=A,1\nb.py,sha256=B,1\nc/d.py,sha256=C,1\ninclude/x.h,sha256=X,1\n/etc/passwd,sha256=P,1\n"
    files = {f"{SITE}/a.py": (1, "other"), f"{SITE}/b.py": (2, "B"), f"{SITE}/evil.pth": (1, "E")}
    assert _compare(files, record + "a-1.dist-info/RECORD,,\n", "include") == {
        "missing": [f"{SITE}/c/d.py"],
        "changed": [f"{SITE}/a.py", f"{SITE}/b.py"],
        "unowned": [f"{SITE}/evil.pth"],
    }


def test_what_is_left_out_is_not_there() -> None:
    record = "include/x.h,sha256=X,1\nlib/n.so,sha256=N,1\nlib/n.so.2,sha256=M,1\na-1.dist-info/RECORD,,\n"
    assert _compare({f"{SITE}/lib/n.so": (1, "N")}, record, "include", "lib/n.so") == {
        "missing": [f"{SITE}/lib/n.so.2"],
        "changed": [],
        "unowned": [f"{SITE}/lib/n.so"],
    }


def test_a_path_of_two_packages_matches_the_last_one_installed() -> None:
    records = {f"{SITE}/{name}-1.dist-info/RECORD": f"tests/__init__.py,sha256={name},1\n" for name in "ab"}
    files = {f"{SITE}/tests/__init__.py": (1, "b")}
    assert compare_records(dict(files), records, [])["changed"] == []


def test_a_damaged_record_is_a_difference() -> None:
    assert _compare({}, 'a.py,"sha256' + "x" * 200_000)["changed"] == [f"{INFO}/RECORD"]
