"""Requirements files: which texts count, what they name, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.base.errors import FieldError
from training_imgtool.model.load import load
from training_imgtool.model.requirement_files import read_requirement_files, read_texts
from training_imgtool.model.requirements import find_unlockable_lines, list_code, parse_requirements, read_hashes


def test_files_that_include_each_other_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "requirements.txt").write_text("-r sub/a.txt\n--constraint=sub/c.txt\nscipy\n")
    (tmp_path / "sub/a.txt").write_text("-r ../requirements.txt\n-cc.txt\n# -r nothing.txt\n")
    (tmp_path / "sub/c.txt").write_text("numpy<2\n")
    files = read_requirement_files(tmp_path, "requirements.txt")
    assert [name for name, _ in files] == ["requirements.txt", "sub/a.txt", "sub/c.txt"]
    named = parse_requirements(files)
    assert [(str(one.requirement), one.place) for one in named] == [
        ("scipy", "requirements.txt:3"),
        ("numpy<2", "sub/c.txt:1"),
    ]


TEXT = """\
# a comment
--index-url https://index.example.com/simple
scipy==1.11.4 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
Typing_Extensions>=4 ; python_version < "3.9"  # why
pandas[excel]~=2.0
git+https://example.com/x.git
./local/wheel-1.0-py3-none-any.whl
https://example.com/y-1.0.whl
name @ https://example.com/z.whl
"""


def test_what_is_named_and_hashed() -> None:
    texts = (("r.txt", TEXT.format(a="a" * 64, b="b" * 64)),)
    assert [(one.requirement.name, one.place) for one in parse_requirements(texts)] == [
        ("scipy", "r.txt:3"),
        ("Typing_Extensions", "r.txt:6"),
        ("pandas", "r.txt:7"),
        ("name", "r.txt:11"),
    ]
    assert read_hashes(texts) == {"scipy": frozenset({"a" * 64, "b" * 64})}


@pytest.mark.parametrize("line", ["scipy = 1", "a b c", "scipy==", "[x]"])
def test_lines_that_are_no_requirements(line: str) -> None:
    with pytest.raises(FieldError, match=r"r\.txt:2: .* is not a requirement") as caught:
        parse_requirements((("r.txt", f"numpy\n{line}\n"),))
    assert caught.value.field == "requirements"
    assert caught.value.exit_code == 3


def test_files_that_cannot_count(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out.txt").write_text("scipy\n")
    (tmp_path / "in/escape.txt").write_text("-r ../out.txt\n")
    (tmp_path / "in/link.txt").symlink_to(tmp_path / "out.txt")
    (tmp_path / "in/latin.txt").write_bytes(b"caf\xe9\n")
    (tmp_path / "in/missing.txt").write_text("-r gone.txt\n")
    for name, message in [
        ("escape.txt", "outside the spec's folder"),
        ("link.txt", "outside the spec's folder"),
        ("latin.txt", "not UTF-8"),
        ("missing.txt", r"gone\.txt: No such file"),
        (".", "Is a directory"),
    ]:
        with pytest.raises(FieldError, match=message) as caught:
            read_requirement_files(tmp_path / "in", name)
        assert caught.value.field == "requirements"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
def test_encodings_and_line_ends_of_windows_change_nothing(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "r.txt").write_bytes("scipy\r\nnumpy\r\n".encode(encoding))
    assert read_requirement_files(tmp_path, "r.txt") == (("r.txt", "scipy\nnumpy\n"),)


def test_packages_of_the_spec_come_after_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "requirements.txt").write_text("scipy\n")
    spec = 'name: m\ntensorflow: "2.15.1"\nroles: {master: {}}\ntrainer: train.py\n'
    spec += "python_packages: [pandas>=2, ./libs/x]\n"
    (tmp_path / "image.yaml").write_text(spec)
    assert read_texts(load(tmp_path / "image.yaml")) == (("python_packages", "pandas>=2\n./libs/x\n"),)
    (tmp_path / "image.yaml").write_text(spec + "requirements: requirements.txt\n")
    texts = read_texts(load(tmp_path / "image.yaml"))
    assert [named.place for named in parse_requirements(texts)] == ["requirements.txt:1", "python_packages[0]"]
    assert [code.origin for code in list_code(texts)] == ["libs/x"]


def test_lists_of_conda_have_a_cure_of_their_own() -> None:
    line = "pandas @ file:///home/conda/feedstock_root/build_artifacts/pandas_1/work\n"
    ((_, why, cure),) = find_unlockable_lines((("requirements.txt", line),))
    assert "conda" in why
    assert cure.startswith("write NAME==VERSION; `pip list --format=freeze`")
    with pytest.raises(FieldError, match=r"environment\.yml is not a requirements file of pip") as caught:
        parse_requirements((("environment.yml", "name: x\ndependencies:\n- python=3.10\n"),))
    assert "pip list --format=freeze" in str(caught.value.hint)


def test_the_name_of_an_import_is_no_package() -> None:
    found = find_unlockable_lines((("requirements.txt", "sklearn>=1\nsklearn-crfsuite\nPIL\npillow\n"),))
    assert [cure for _, _, cure in found] == ["write scikit-learn", "write pillow"]
