"""Layers of wheels: right, the same every time, made once, and refused where pip's result is not known."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import threading
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.measure import peak_memory
from tests.oci.direct.wheels import Node, locked, make_wheel, tar_tree
from training_imgtool.base.errors import InputError, NeedsEngineError, VerificationError
from training_imgtool.base.interpreters import NoInterpreterError
from training_imgtool.model.lock import LockedVariant, Wheel
from training_imgtool.oci.layers import codecs, layers
from training_imgtool.oci.layers.codecs import Compression
from training_imgtool.oci.layers.layer_cache import RECORDS, LayerCache, dump_records, read_records
from training_imgtool.oci.layers.layers import MTIME, LayerSource, group_wheels
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools
from training_imgtool.oci.wheel_layers.wheel_layers import make_packages_layers
from training_imgtool.resolve.wheels.interpreters import find_interpreter

SITE = "/opt/venv/lib/python3.11/site-packages"
PIP_FILES = {
    "pip/_internal/operations/install/wheel.py": b"""
import textwrap
class PipScriptMaker:
    script_template = textwrap.dedent(\"\"\"\\
        import sys
        from %(module)s import %(import_name)s
        sys.exit(%(func)s())
\"\"\")
"""
}


class Bench:
    """A small wheel set and what is needed to make layers of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        self.pip = make_wheel(folder, "pip", PIP_FILES, version="25.0")
        tools = {"tool/__init__.py": b"", "tool/main.py": b"def run(): pass\n" * 300, "tool/broken.py": b"def ("}
        tools |= {"tool/tests/__init__.py": b"", "tool/test/x.py": b"", "tool/tests.py": b""}
        data = {"tool-1.0.data/scripts/go": b"#!python\nimport tool\n", "tool-1.0.data/data/share/x": b"shared"}
        self.wheels = [
            make_wheel(folder, "tool", tools | data, entry_points="[console_scripts]\ntool = tool.main:run\n"),
            make_wheel(folder, "other", {"other.py": b"1\n", "blob.bin": os.urandom(300_000)}, stored=["blob.bin"]),
        ]

    @property
    def locked(self) -> LockedVariant:
        return locked(self.wheels, self.pip)

    def path(self, wheel: Wheel) -> Path:
        self.fetched.append(wheel.file)
        return self.folder / wheel.file

    def tools(self, compression: Compression = Compression.GZIP, cache: str = "cache") -> LayerTools:
        return LayerTools(
            cache=LayerCache(self.folder / cache),
            wheel_path=self.path,
            find_interpreter=lambda python: find_interpreter(python, os.environ),
            compression=compression,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    if find_interpreter("3.11", {"PATH": os.environ["PATH"]}) is None:
        pytest.skip("no Python 3.11 on this machine, which the image of these tests has")
    return Bench(tmp_path)


def _unpacked(layer: LayerSource) -> bytes:
    """The tar, by the real gzip or zstd; the digests are checked."""
    data = b"".join(layer.open())
    assert len(data) == layer.descriptor.size
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == layer.descriptor.digest
    if layer.descriptor.media_type.endswith("zstd"):
        import zstandard

        tar = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    else:
        subprocess.run(["gzip", "-t"], input=data, check=True)
        tar = subprocess.run(["gzip", "-dc"], input=data, check=True, capture_output=True).stdout
    assert f"sha256:{hashlib.sha256(tar).hexdigest()}" == layer.diff_id
    return tar


def _tree(layers: tuple[LayerSource, ...]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for layer in layers:
        tar_tree(io.BytesIO(_unpacked(layer)), found, mtime=MTIME)
    return found


@pytest.mark.parametrize("compression", Compression)
def test_every_compression_gives_the_same_tree(bench: Bench, compression: Compression) -> None:
    found = _tree(make_packages_layers(bench.locked, (), bench.tools(compression)))
    assert found["/opt/venv/bin/python"] == Node("link", 0, content="/usr/local/bin/python3.11")
    assert found["/opt/venv/bin/tool"].mode == 0o755
    assert found["/opt/venv/bin/go"].size == len("#!/opt/venv/bin/python\nimport tool\n")
    assert found["/opt/venv/share/x"].size == 6
    assert f"{SITE}/tool/__pycache__/main.cpython-311.pyc" in found
    assert f"{SITE}/tool/__pycache__/broken.cpython-311.pyc" not in found
    assert f"{SITE}/tool/__pycache__/tests.cpython-311.pyc" in found
    assert f"{SITE}/tool/test/__pycache__/x.cpython-311.pyc" in found
    assert f"{SITE}/tool/tests/__init__.py" in found
    assert f"{SITE}/tool/tests/__pycache__" not in found
    assert found[f"{SITE}/blob.bin"].size == 300_000
    assert {node.owner for node in found.values()} == {(0, 0)}
    assert all(path.startswith("/opt/venv") for path in found)


def test_a_large_wheel_is_split(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_packages_layers(bench.locked, (), bench.tools(cache="whole"))
    monkeypatch.setattr(layers, "LARGEST_PART", 1000)
    monkeypatch.setattr(layers, "_FEW", 0)
    parts = make_packages_layers(bench.locked, (), bench.tools(cache="parts"))
    assert len(parts) > len(whole) + 1
    assert _tree(parts) == _tree(whole)
    again = make_packages_layers(bench.locked, (), bench.tools(cache="parts"))
    assert [layer.descriptor for layer in again] == [layer.descriptor for layer in parts]
    assert _tree(again) == _tree(whole)


def test_two_machines_agree(bench: Bench) -> None:
    one = make_packages_layers(bench.locked, (), bench.tools(cache="one"))
    other = make_packages_layers(bench.locked, (), bench.tools(cache="two"))
    assert [(a.descriptor, a.diff_id) for a in one] == [(b.descriptor, b.diff_id) for b in other]
    assert len({a.descriptor.digest for a in one}) == len(one)


def test_the_second_time_no_wheel_is_touched(bench: Bench) -> None:
    first = make_packages_layers(bench.locked, (), bench.tools())
    bench.fetched.clear()
    heard: list[LayerSource] = []
    again = make_packages_layers(bench.locked, (), replace(bench.tools(), ready=heard.append))
    assert [layer.descriptor for layer in again] == [layer.descriptor for layer in first]
    assert {layer.descriptor for layer in heard} == {layer.descriptor for layer in first}
    assert _tree(again) == _tree(first)
    assert bench.fetched == []


def test_groups_are_made_as_their_wheels_arrive_and_go_up_layer_by_layer(bench: Bench) -> None:
    bench.wheels += [make_wheel(bench.folder, name, {f"{name}.py": b"1\n"}) for name in "abcdefgh"]
    late, *early = group_wheels(bench.locked.wheels)
    assert early
    names: list[str] = []
    others_done = threading.Event()

    def arrive(wheel: Wheel) -> Path:
        if wheel in late.wheels:
            assert others_done.wait(20)
        return bench.path(wheel)

    def heard(layer: LayerSource) -> None:
        names.append(layer.history.removeprefix("COPY /opt/venv: ").partition(" #")[0])
        if {group.name for group in early} <= set(names):
            others_done.set()

    make_packages_layers(bench.locked, (), replace(bench.tools(), wheel_path=arrive, ready=heard))
    assert names.index(late.name) >= len(early)
    assert names.index(f"{late.name} bytecode") > names.index(late.name)


def test_records_travel_to_another_machine(bench: Bench) -> None:
    first = replace(bench.tools(), cache=LayerCache(bench.folder / "a"))
    made = make_packages_layers(bench.locked, (), first)
    records = first.cache.records_of([layer.descriptor.digest for layer in made])
    bench.fetched.clear()
    second = replace(bench.tools(), cache=LayerCache(bench.folder / "b"), find_interpreter=lambda _: None)
    second.cache.given |= read_records({RECORDS: dump_records(records)})
    found = make_packages_layers(bench.locked, (), second)
    assert [layer.descriptor for layer in found] == [layer.descriptor for layer in made]
    assert bench.fetched == []
    third = replace(second, cache=LayerCache(bench.folder / "b"))  # which kept nothing of them
    with pytest.raises(NoInterpreterError):
        make_packages_layers(bench.locked, (), third)


def test_layers_for_another_release_of_python_are_made_anew(bench: Bench) -> None:
    """Their compilers may differ, and `verify` compares an engine's bytecode with what this machine keeps."""
    for release in (None, "3.11.2", "3.11.7"):
        bench.fetched.clear()
        make_packages_layers(bench.locked, (), replace(bench.tools(), release=release))
        assert bench.fetched
    make_packages_layers(bench.locked, (), replace(bench.tools(), release="3.11.2", find_interpreter=lambda _: None))


def test_one_package_more_needs_the_wheels_of_its_own_layer_only(bench: Bench) -> None:
    make_packages_layers(bench.locked, (), bench.tools())
    bench.wheels.append(make_wheel(bench.folder, "third", {"third.py": b"3\n"}))
    bench.fetched.clear()
    expected: list[str] = []
    tools = replace(bench.tools(), expect=lambda wheels: expected.extend(wheel.file for wheel in wheels))
    make_packages_layers(bench.locked, (), tools)
    (group,) = (group for group in group_wheels(bench.locked.wheels) if "third" in {w.name for w in group.wheels})
    needed = {*(wheel.file for wheel in group.wheels), bench.pip.name}
    assert {*bench.fetched} == {*expected} == needed
    assert len(group.wheels) < len(bench.wheels)


def test_a_clash_with_what_was_made_before_is_seen(bench: Bench) -> None:
    make_packages_layers(bench.locked, (), bench.tools())
    bench.wheels.append(make_wheel(bench.folder, "third", {"tool/main.py": b"3\n"}))
    with pytest.raises(NeedsEngineError, match=r"tool and third have .*/tool/main\.py"):
        make_packages_layers(bench.locked, (), bench.tools())


def test_a_clash_with_what_was_made_by_an_imgtool_that_noted_no_claims_is_seen(bench: Bench) -> None:
    tools = bench.tools()
    made = make_packages_layers(bench.locked, (), tools)
    for key, record in tools.cache.records_of([layer.descriptor.digest for layer in made]).items():
        tools.cache.keep(key, replace(record, claims=None))
    assert make_packages_layers(bench.locked, (), bench.tools())
    bench.wheels.append(make_wheel(bench.folder, "third", {"tool/main.py": b"3\n"}))
    with pytest.raises(NeedsEngineError, match=r"tool and third have .*/tool/main\.py"):
        make_packages_layers(bench.locked, (), bench.tools())


def test_a_few_lines_of_a_large_wheel_have_their_bytecode_beside_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "_LARGE", 1000)
    bench.wheels = [make_wheel(bench.folder, "big", {"big/__init__.py": b"1\n", "big/x": os.urandom(2000)})]
    made = make_packages_layers(bench.locked, (), bench.tools())
    assert not [layer.history for layer in made if "bytecode" in layer.history]
    assert f"{SITE}/big/__pycache__/__init__.cpython-311.pyc" in _tree(made)


def test_lost_layers_are_made_again(bench: Bench) -> None:
    first = _tree(make_packages_layers(bench.locked, (), bench.tools()))
    shutil.rmtree(bench.folder / "cache/blobs")
    assert _tree(make_packages_layers(bench.locked, (), bench.tools())) == first


def test_a_layer_that_is_made_again_as_other_bytes_drops_its_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another library that compresses does."""
    made = make_packages_layers(bench.locked, (), bench.tools())
    shutil.rmtree(bench.folder / "cache/blobs")
    monkeypatch.setattr(codecs, "load_fast_library", lambda: zlib)
    again = make_packages_layers(bench.locked, (), bench.tools())
    with pytest.raises(VerificationError, match="made the layer again, but with other bytes") as caught:
        list(again[0].open())
    assert (caught.value.hint or "").startswith("imgtool deleted the layer's record; run the command again")
    assert make_packages_layers(bench.locked, (), bench.tools())[0].descriptor != made[0].descriptor


def test_a_wheel_that_is_not_the_locked_one(bench: Bench) -> None:
    lock = bench.locked
    wrong = tuple(replace(wheel, sha256="0" * 64) for wheel in lock.wheels)
    with pytest.raises(VerificationError, match="the lock says"):
        make_packages_layers(replace(lock, wheels=wrong), (), bench.tools())


def test_excluded_files_are_gone_and_their_folder_stays(bench: Bench) -> None:
    found = _tree(make_packages_layers(bench.locked, ("tool/main.py", "other-1.0.dist-info/"), bench.tools()))
    assert f"{SITE}/tool" in found
    assert not [path for path in found if "main" in path or "other-1.0" in path]


@pytest.mark.parametrize("prefix", ["../bin", "", "a//b", "./x"])
def test_odd_exclusions_are_for_an_engine(bench: Bench, prefix: str) -> None:
    with pytest.raises(NeedsEngineError, match="exclude"):
        make_packages_layers(bench.locked, (prefix,), bench.tools())


def test_clashes(bench: Bench) -> None:
    same = make_wheel(bench.folder, "same", {"other.py": b"1\n"})
    bench.wheels.append(same)
    assert f"{SITE}/other.py" in _tree(make_packages_layers(bench.locked, (), bench.tools()))
    bench.wheels.append(make_wheel(bench.folder, "clash", {"other.py": b"2\n"}))
    with pytest.raises(NeedsEngineError, match=r"clash and other have .*/other\.py"):
        make_packages_layers(bench.locked, (), bench.tools())


def test_a_script_wins_over_a_file_of_its_wheel_at_the_same_place(bench: Bench) -> None:
    """As pip writes them: scripts last, wherever they stand in the archive."""
    places = ("twice-1.0.data/scripts/run", "twice-1.0.data/data/bin/run")
    for order in (places, places[::-1]):
        files = {place: b"#!python\nscript" if "scripts" in place else b"data" for place in order}
        bench.wheels = [make_wheel(bench.folder, "twice", files)]
        run = _tree(make_packages_layers(bench.locked, (), bench.tools()))["/opt/venv/bin/run"]
        assert run.content == hashlib.sha256(b"#!/opt/venv/bin/python\nscript").hexdigest()


def test_a_scheme_s_file_wins_over_one_of_the_root_at_the_same_place(bench: Bench) -> None:
    places = ("twice-1.0.data/purelib/tool.py", "tool.py")
    for order in (places, places[::-1]):
        bench.wheels = [make_wheel(bench.folder, "twice", {place: place.encode() for place in order})]
        tool = _tree(make_packages_layers(bench.locked, (), bench.tools()))[f"{SITE}/tool.py"]
        assert tool.content == hashlib.sha256(places[0].encode()).hexdigest()


@pytest.mark.parametrize(
    ("files", "entry_points", "why"),
    [
        ({"bad-1.0.data/scripts/python": b"x"}, "", "the virtual environment and bad have"),
        ({"../evil": b"x"}, "", "leads out"),
        ({"/etc/evil": b"x"}, "", "leads out"),
        ({"bad-1.0.data/unknown/x": b"x"}, "", "install scheme"),
        ({"other-2.0.dist-info/x": b"x"}, "", "one .dist-info"),
        (
            {"bad-1.0.dist-info/WHEEL": b"Wheel-Version: 2.0\n"},
            "",
            r"Wheel-Version is '2\.0', but imgtool knows only 1\.x",
        ),
        ({"bad-1.0.dist-info/WHEEL": b"\xff"}, "", "WHEEL is not UTF-8"),
        ({"bad-1.0.dist-info/RECORD": b"a,,\n\nb,,\n"}, "", "RECORD has an empty line"),
        ({}, "[console_scripts]\nbad = no_function\n", "NAME = MODULE:FUNCTION"),
        ({}, "[console_scripts]\n../bad = a:b\n", "NAME = MODULE:FUNCTION"),
    ],
)
def test_what_pip_would_refuse(bench: Bench, files: dict[str, bytes], entry_points: str, why: str) -> None:
    bench.wheels = [make_wheel(bench.folder, "bad", files, entry_points=entry_points)]
    with pytest.raises(NeedsEngineError, match=why):
        make_packages_layers(bench.locked, (), bench.tools())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"evil": b"x", "evil/a.py": b"x"}, {}),
        ({"bad-1.0.data/data/lib": b"x"}, {}),
        ({"bad-1.0.data/data/bin": b"x"}, {}),
        ({"bad-1.0.data/data/pyvenv.cfg/x": b"x"}, {}),
        ({"pack": b"x"}, {"pack/__init__.py": b"x"}),
        ({"pack/a.py": b"x"}, {"pack": b"x"}),
    ],
)
def test_paths_that_pip_refuses_are_refused(bench: Bench, first: dict[str, bytes], second: dict[str, bytes]) -> None:
    bench.wheels = [make_wheel(bench.folder, "bad", first), make_wheel(bench.folder, "other", second)]
    with pytest.raises(VerificationError, match="pip refuses this, too"):
        make_packages_layers(bench.locked, (), bench.tools())


@pytest.mark.parametrize("name", ["n" * 256, "/".join(["n" * 250] * 17), "/".join(["n" * 250] * 15 + ["m" * 70])])
def test_names_that_are_too_long_are_refused(bench: Bench, name: str) -> None:
    bench.wheels = [make_wheel(bench.folder, "bad", {name: b"x"})]
    with pytest.raises(InputError, match="bytes"):
        make_packages_layers(bench.locked, (), bench.tools())


def test_large_scripts_get_their_interpreter_and_larger_ones_go_to_an_engine(bench: Bench) -> None:
    def script(size: int) -> dict[str, bytes]:
        return {"big-1.0.data/scripts/run": b"#!python -u\n" + b"x = 1\n" * (size // 6)}

    bench.wheels = [make_wheel(bench.folder, "big", script(3 << 20))]
    size = _tree(make_packages_layers(bench.locked, (), bench.tools()))["/opt/venv/bin/run"].size
    assert size == len(b"#!/opt/venv/bin/python\n") + (3 << 20) // 6 * 6
    bench.wheels = [make_wheel(bench.folder, "big", script(17 << 20))]
    with pytest.raises(NeedsEngineError, match="too many to rewrite the file"):
        make_packages_layers(bench.locked, (), bench.tools())


@pytest.mark.parametrize(
    ("member", "honest"),
    [
        ("bomb-1.0.data/scripts/x", True),
        ("bomb-1.0.data/scripts/x", False),
        ("bomb-1.0.dist-info/WHEEL", True),
        ("bomb/data.bin", False),
        ("bomb.py", True),
        ("bomb.py", False),
    ],
)
def test_a_bomb_ends_early(bench: Bench, member: str, honest: bool) -> None:
    path = make_wheel(bench.folder, "bomb", {member: b"#!python\n" + bytes(64 << 20)} if "info" not in member else {})
    if "info" in member:
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(member, bytes(64 << 20))
    if not honest:
        data = path.read_bytes()
        for size in (9 + (64 << 20), 64 << 20):
            data = data.replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
        path.write_bytes(data)
    bench.wheels = [path]
    with peak_memory() as peak, pytest.raises((VerificationError, NeedsEngineError)) as caught:
        make_packages_layers(bench.locked, (), bench.tools())
    assert isinstance(caught.value, VerificationError) or honest
    assert peak.bytes < 40 << 20


def test_without_an_interpreter_it_is_for_an_engine_and_nothing_is_fetched(bench: Bench) -> None:
    asked: list[object] = []

    def fetch(wheel: Wheel) -> Path:
        asked.append(wheel)
        return Path()

    tools = replace(bench.tools(), find_interpreter=lambda _: None, wheel_path=fetch, expect=asked.append)
    with pytest.raises(NeedsEngineError, match=r"has no Python 3\.11"):
        make_packages_layers(bench.locked, (), tools)
    assert asked == []


def test_an_unknown_pip_is_for_an_engine(bench: Bench) -> None:
    bench.pip = make_wheel(bench.folder, "pip", {"pip/__init__.py": b""}, version="99")
    with pytest.raises(NeedsEngineError, match="console script"):
        make_packages_layers(bench.locked, (), bench.tools())


def test_groups_that_exclude_leaves_nothing_of_have_one_layer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_LARGE", 1)
    bench.wheels = [make_wheel(bench.folder, name, {f"{name}/__init__.py": b""}) for name in ("one", "two", "three")]
    gone = tuple(f"{name}{end}" for name in ("one", "two") for end in ("", "-1.0.dist-info"))
    made = make_packages_layers(bench.locked, gone, bench.tools())
    assert len({layer.diff_id for layer in made}) == len(made)
    assert [path for path in _tree(made) if path.startswith(f"{SITE}/three/__init__")] == [f"{SITE}/three/__init__.py"]
