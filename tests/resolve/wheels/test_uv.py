"""uv's door, against an index on loopback: choices, conflicts, refusals, and nothing secret in what comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.simple_index import SimpleIndex, serving, tiny_wheel
from training_imgtool.base.errors import InputError, LocalFileError, TemporaryError
from training_imgtool.base.settings import from_environment
from training_imgtool.resolve.wheels.index.pip_config import make_uv_environ
from training_imgtool.resolve.wheels.uv import Indexes, Target, compile_requirements, find_indexes

TARGET = Target(python="3.10", platform="linux/amd64", glibc="2.36")


@pytest.fixture
def index() -> Iterator[SimpleIndex]:
    own = SimpleIndex()
    for name, version, requires in [
        ("app", "1.0", ("lib<2",)),
        ("lib", "1.5", ()),
        ("lib", "2.0", ()),
        ("old", "1.0", ("lib>=2",)),
    ]:
        own.add(name, f"{name}-{version}-py3-none-any.whl", tiny_wheel(name, version, requires=requires))
    native = tiny_wheel("native", "1.0")
    for tag in (
        "cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp310-cp310-manylinux_2_39_x86_64",
        "cp311-cp311-manylinux_2_17_x86_64",
        "cp310-cp310-musllinux_1_2_x86_64",
        "cp310-cp310-macosx_11_0_arm64",
        "py3-none-any",
    ):
        own.add("native", f"native-1.0-{tag}.whl", native + tag.encode())
    own.add("source", "source-1.0.tar.gz", b"never unpacked")
    with serving(own):
        yield own


@pytest.fixture
def environ(tmp_path: Path, index: SimpleIndex) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "UV_INDEX_URL": index.url,
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "UV_HTTP_RETRIES": "0",
        "UV_NO_CONFIG": "1",
    }


def test_one_fitting_wheel_per_package(tmp_path: Path, environ: dict[str, str], index: SimpleIndex) -> None:
    found = compile_requirements("app\nnative\n", TARGET, environ=environ)
    assert [(one.name, one.version, one.file) for one in found] == [
        ("app", "1.0", "app-1.0-py3-none-any.whl"),
        ("lib", "1.5", "lib-1.5-py3-none-any.whl"),
        ("native", "1.0", "native-1.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"),
    ]
    assert all(len(one.sha256) == 64 and one.url.startswith(index.url.removesuffix("/simple")) for one in found)


def test_wheels_that_the_first_release_of_a_python_cannot_have(
    tmp_path: Path, environ: dict[str, str], index: SimpleIndex
) -> None:
    file = "later-1.0-py3-none-any.whl"
    index.add("later", file, tiny_wheel("later", "1.0"))
    index.metadata[file] = b"Metadata-Version: 2.1\nName: later\nVersion: 1.0\nRequires-Python: >=3.10.1\n"
    (one,) = compile_requirements("later\n", TARGET, environ=environ)
    assert one.file == file


def test_constraints_count(tmp_path: Path, environ: dict[str, str]) -> None:
    (one,) = compile_requirements("lib\n", TARGET, environ=environ, constraints=("lib<2",))
    assert one.version == "1.5"


def test_requirements_file_with_includes(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "requirements.txt").write_text("-r more.txt\n-c held.txt\nlib ; python_version >= '3.9'\n")
    (tmp_path / "more.txt").write_text("native\nold ; python_version < '3.0'\n")
    (tmp_path / "held.txt").write_text("lib<2\n")
    text = f"-r {tmp_path / 'requirements.txt'}\n"
    found = compile_requirements(text, TARGET, environ=environ)
    assert [(one.name, one.version) for one in found] == [("lib", "1.5"), ("native", "1.0")]


def test_folder_with_own_wheels(tmp_path: Path, environ: dict[str, str]) -> None:
    """It comes beside the user's find-links, where a build of PyTorch may be."""
    folders = {name: tmp_path / name for name in ("source", "mine")}
    for name, folder in folders.items():
        folder.mkdir()
        (folder / f"{name}-1.0-py3-none-any.whl").write_bytes(tiny_wheel(name, "1.0"))
    own = {**environ, "UV_FIND_LINKS": str(folders["mine"])}
    found = compile_requirements("source\nmine\n", TARGET, environ=own, find_links=(folders["source"],))
    assert {one.name: one.url for one in found} == {one.name: (folders[one.name] / one.file).as_uri() for one in found}
    assert len(found) == 2


def test_versions_that_are_preferred_where_they_fit(
    tmp_path: Path, environ: dict[str, str], index: SimpleIndex
) -> None:
    """Not a version that is gone, nor one that another requirement rules out, nor one without a fitting wheel."""
    for name, version in (("free", "1.0"), ("free", "2.0"), ("gone", "2.0")):
        index.add(name, f"{name}-{version}-py3-none-any.whl", tiny_wheel(name, version))
    index.add("tagged", "tagged-1.0-cp37-cp37m-manylinux1_x86_64.whl", tiny_wheel("tagged", "1.0"))
    index.add("tagged", "tagged-2.0-py3-none-any.whl", tiny_wheel("tagged", "2.0"))
    preferred = {"free": "1.0", "gone": "1.0", "lib": "2.0", "tagged": "1.0", "never-heard-of": "1"}
    found = compile_requirements("app\nfree\ngone\ntagged\n", TARGET, environ=environ, preferred=preferred)
    versions = {one.name: one.version for one in found}
    assert versions == {"app": "1.0", "lib": "1.5", "free": "1.0", "gone": "2.0", "tagged": "2.0"}
    found = compile_requirements("free\n", TARGET, environ=environ)
    assert [one.version for one in found] == ["2.0"]


def test_hashes_of_the_user_choose(tmp_path: Path, environ: dict[str, str], index: SimpleIndex) -> None:
    import hashlib

    pure = hashlib.sha256(index.files["native"]["native-1.0-py3-none-any.whl"]).hexdigest()
    hashes = {"native": frozenset({pure})}
    (one,) = compile_requirements("native\n", TARGET, environ=environ, hashes=hashes)
    assert one.file == "native-1.0-py3-none-any.whl"
    none = {"native": frozenset({"0" * 64})}
    with pytest.raises(InputError, match=r"native 1\.0 has no wheel with one of the hashes"):
        compile_requirements("native\n", TARGET, environ=environ, hashes=none)


def test_unknown_package_and_bad_line(tmp_path: Path, environ: dict[str, str]) -> None:
    for text, hint in [
        ("absent\n", "correct the name"),
        ("lib==3\n", "require a version of lib"),
        ("not a requirement !!\n", "loosen"),
    ]:
        with pytest.raises(InputError) as caught:
            compile_requirements(text, TARGET, environ=environ)
        assert caught.value.details
        assert str(caught.value.hint).startswith(hint)


def test_index_that_is_not_there(tmp_path: Path, environ: dict[str, str]) -> None:
    gone = {**environ, "UV_INDEX_URL": "http://user:s3cret@127.0.0.1:9/simple"}
    with pytest.raises(TemporaryError) as caught:
        compile_requirements("lib\n", TARGET, environ=gone)
    assert caught.value.exit_code == 8
    assert "s3cret" not in repr((str(caught.value), caught.value.hint, caught.value.details))


def test_index_that_is_broken(tmp_path: Path, environ: dict[str, str], index: SimpleIndex) -> None:
    index.faults = [500] * 20
    with pytest.raises(TemporaryError):
        compile_requirements("lib\n", TARGET, environ=environ)


def test_indexes_as_uv_sees_them(tmp_path: Path, environ: dict[str, str]) -> None:
    own = {**environ, "UV_EXTRA_INDEX_URL": "http://127.0.0.1:8/simple", "UV_FIND_LINKS": str(tmp_path)}
    assert find_indexes(own) == Indexes(("http://127.0.0.1:8/simple", environ["UV_INDEX_URL"]), (str(tmp_path),))


def test_only_the_user_s_own_configuration_of_uv_counts(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the folder where imgtool runs, nor of one above it, and not that of a temporary folder's owner."""
    user = tmp_path / ".config/uv/uv.toml"
    user.parent.mkdir(parents=True)
    line = '[[index]]\nname = "corp"\nurl = "http://127.0.0.1:{}/simple"\ndefault = true\n'
    user.write_text(line.format(7))
    place = tmp_path / "above/spec"
    place.mkdir(parents=True)
    (place / "uv.toml").write_text(line.format(8))
    (place.parent / "uv.toml").write_text('resolution = "lowest"\n')
    (tmp_path / "uv.toml").write_text(line.format(9))
    monkeypatch.chdir(place)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = {key: value for key, value in environ.items() if key not in {"UV_INDEX_URL", "UV_NO_CONFIG"}}
    assert find_indexes(own).urls == ("http://127.0.0.1:7/simple",)
    (one,) = compile_requirements("lib\n", TARGET, environ={**own, "UV_INDEX_URL": environ["UV_INDEX_URL"]})
    assert one.version == "2.0"


def test_the_file_that_uv_config_file_names_counts(tmp_path: Path, environ: dict[str, str], index: SimpleIndex) -> None:
    config = tmp_path / "own.toml"
    config.write_text(f'[[index]]\nurl = "{index.url}"\ndefault = true\n')
    own = {key: value for key, value in environ.items() if key not in {"UV_INDEX_URL", "UV_NO_CONFIG"}}
    (one,) = compile_requirements("lib\n", TARGET, environ={**own, "UV_CONFIG_FILE": str(config)})
    assert one.version == "2.0"


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("--extra-index-url http://127.0.0.1:9/${CANARY}/simple", "CANARY@127.0.0.1:9"),
        ("--extra-index-url http://u:${CANARY}@127.0.0.1:9/simple", ""),
        ("--extra-index-url http://u:${CANARY}@127.0.0.1:9/simple", "CANARY@other.example.com,TEAM@127.0.0.1:9"),
        ("--extra-index-url http://${TEAM}:${CANARY}@127.0.0.1:9/simple", "TEAM@127.0.0.1:9"),
        ("--find-links http://127.0.0.1:9/?${CANARY}", "CANARY@127.0.0.1:9"),
        ("--extra-index-url http://127.0.0.1:9/?u:${CANARY}@127.0.0.1:8/", "CANARY@127.0.0.1:8"),
        ("--extra-index-url http://u:${CANARY}@127.0.0.1:8@127.0.0.1:9/", "CANARY@127.0.0.1:8"),
        ("--extra-index-url http://u:${CANARY}@127.0.0.1:8?@127.0.0.1:9/", "CANARY@127.0.0.1:8"),
        ("${CANARY}", "CANARY@127.0.0.1:9"),
    ],
)
def test_a_project_s_file_reads_no_variable_of_the_machine(environ: dict[str, str], line: str, allowed: str) -> None:
    own = {**environ, "CANARY": "s3cret", "TEAM": "team", "IMGTOOL_INDEX_VARIABLES": allowed}
    with pytest.raises(InputError, match="you have not allowed them to read") as caught:
        find_indexes(own, (line,))
    assert "s3cret" not in str(caught.value)
    with pytest.raises(InputError, match="you have not allowed them to read"):
        compile_requirements(f"{line}\nlib\n", TARGET, environ=own)


def test_a_variable_is_a_login_where_the_machine_says_so(environ: dict[str, str], index: SimpleIndex) -> None:
    index.login = ("robot", "s3cret")
    host = index.url.removeprefix("http://").partition("/")[0]
    own = {**environ, "TEAM": "s3cret", "IMGTOOL_INDEX_VARIABLES": f"OTHER@example.com, TEAM@{host}"}
    del own["UV_INDEX_URL"]
    line = f"--index-url {index.url.replace('://', '://robot:${TEAM}@')}"
    assert find_indexes(own, (line,)).urls == (index.with_login(),)
    (one,) = compile_requirements(f"{line}\nlib\n", TARGET, environ=own)
    assert one.version == "2.0"


def test_pip_s_settings_reach_uv(tmp_path: Path, environ: dict[str, str], index: SimpleIndex) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = {index.url}\n")
    own = {key: value for key, value in environ.items() if key != "UV_INDEX_URL"}
    (one,) = compile_requirements("lib\n", TARGET, environ=make_uv_environ({**own, "PIP_CONFIG_FILE": str(config)}))
    assert one.version == "2.0"


@pytest.mark.parametrize(
    "own", [{"PIP_NO_INDEX": "1"}, {"UV_NO_INDEX": "true"}, {"PIP_NO_INDEX": "on", "UV_FIND_LINKS": ""}]
)
def test_no_index_is_obeyed(tmp_path: Path, environ: dict[str, str], index: SimpleIndex, own: dict[str, str]) -> None:
    """No request reaches the default index, and nothing of it is chosen."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "lib-1.0-py3-none-any.whl").write_bytes(tiny_wheel("lib", "1.0"))
    rest = {key: value for key, value in environ.items() if key != "UV_INDEX_URL"}
    pip = {"PIP_INDEX_URL": index.url, "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}
    settings = make_uv_environ({**rest, **pip, **own})
    (wheel,) = compile_requirements("lib\n", TARGET, environ=settings)
    assert wheel.version == "1.0"
    with pytest.raises(InputError):
        compile_requirements("app\n", TARGET, environ=settings)
    assert find_indexes(settings).urls == ()
    assert not index.requests


def test_a_cache_that_cannot_be_written_is_named(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = from_environment({"IMGTOOL_CACHE": f"{tmp_path}/file"})
    del environ["UV_CACHE_DIR"]
    with pytest.raises(LocalFileError, match=rf"^{tmp_path}/file/uv: uv cannot use it: Not a directory") as caught:
        compile_requirements("app\n", TARGET, environ={**settings.environ, **environ})
    assert "IMGTOOL_CACHE" in str(caught.value.hint)
