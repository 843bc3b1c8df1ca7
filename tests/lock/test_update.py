"""Making a lock, against an index on loopback that has a TensorFlow of a few bytes."""

from __future__ import annotations

import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.servers.simple_index import SimpleIndex, serving, tiny_wheel
from tests.wheels.libraries import make_library
from tests.wheels.test_sdist import archive_of
from training_imgtool.core.errors import FieldError, FieldListError, InputError, TemporaryError
from training_imgtool.core.progress import Event, Note
from training_imgtool.core.settings import Settings
from training_imgtool.lock.carry_over import Renewal
from training_imgtool.lock.lockfile import differences, dump_lock, lock_inputs
from training_imgtool.lock.parse import parse_lock
from training_imgtool.lock.update import make_lock
from training_imgtool.plan import Lock
from training_imgtool.spec.load import SpecFile, load
from training_imgtool.spec.requirements import read_requirement_files
from training_imgtool.versions.matrix import Matrix, SourceArchive, load_matrix
from training_imgtool.wheels.store import WheelStore
from training_imgtool.wheels.uv import UnreadableMetadataError, compile_requirements

SCIPY = "scipy 1.11.4 -> 1.11.5"
DIGEST = "sha256:" + "a" * 64
SPEC = """\
name: mnist
tensorflow: "2.15.1"
roles:
  master: {gpus: {type: NVIDIA_TESLA_V100}}
  ps: {}
"""


class Events(list[Event]):
    """A Progress that keeps what it is told."""

    def __call__(self, event: Event) -> None:
        self.append(event)


@dataclass
class Place:
    """A folder with a spec, an index, and the settings that lead to it."""

    folder: Path
    index: SimpleIndex
    settings: Settings
    matrix: Matrix

    def spec(self, text: str, requirements: str | None = None) -> SpecFile:
        """Writes a spec, with requirements when given, and reads it."""
        (self.folder / "trainer").mkdir(exist_ok=True)
        (self.folder / "trainer/task.py").write_text("")
        (self.folder / "trainer/__init__.py").write_text("")
        if requirements is not None:
            (self.folder / "requirements.txt").write_text(requirements)
            text += "requirements: requirements.txt\n"
        (self.folder / "image.yaml").write_text(text)
        return load(self.folder / "image.yaml")

    def lock(self, spec_file: SpecFile, progress: Events | None = None) -> Lock:
        """The spec's lock, the bases' digests being `DIGEST`."""
        return make_lock(
            spec_file, self.matrix, lambda _: DIGEST, self.settings, Events() if progress is None else progress
        )


def add(index: SimpleIndex, name: str, version: str, requires: tuple[str, ...] = (), *, python: str = "") -> None:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    index.add(name, file, tiny_wheel(name.replace("-", "_"), version, requires=requires, python=python))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    index = SimpleIndex()
    for name in ("tensorflow", "tensorflow-cpu"):
        add(index, name, "2.15.1", ("numpy>=1.23.5,<2", "setuptools"))
    add(index, "tensorflow", "2.15.0")
    for name, version in [
        ("numpy", "1.26.4"),
        ("numpy", "2.1.0"),
        ("setuptools", "80.1"),
        ("setuptools", "82.0"),
        ("nvidia-cuda-nvcc-cu12", "12.2.140"),
        ("pip", "26.0"),
        ("pip", "24.0"),
        ("scipy", "1.11.4"),
    ]:
        add(index, name, version)
    add(index, "hub", "1.0", ("tensorflow>=2.3",))
    folder = tmp_path / "spec"
    folder.mkdir()
    with serving(index):
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "UV_INDEX_URL": index.url,
            "UV_CACHE_DIR": str(tmp_path / "uv"),
            "UV_NO_CONFIG": "1",
            "UV_HTTP_RETRIES": "0",
        }
        settings = Settings(cache=tmp_path / "cache", mirrors={}, docker_config=tmp_path, proxies={}, environ=environ)
        yield Place(folder, index, settings, load_matrix())


def test_a_lock_of_two_variants(place: Place) -> None:
    spec_file = place.spec(SPEC, "scipy\nhub\n")
    lock = place.lock(spec_file)
    gpu, cpu = lock.variants
    assert (gpu.variant.name, cpu.variant.name) == ("gpu", "cpu")
    assert {wheel.name: wheel.version for wheel in gpu.wheels} == {
        "hub": "1.0",
        "numpy": "1.26.4",
        "nvidia-cuda-nvcc-cu12": "12.2.140",
        "scipy": "1.11.4",
        "setuptools": "80.1",  # held back: 82 has no pkg_resources
        "tensorflow": "2.15.1",
    }
    # hub asks for `tensorflow`, which tensorflow-cpu is here: the wheel would write the same files twice
    assert {wheel.name for wheel in cpu.wheels} == {"hub", "numpy", "scipy", "setuptools", "tensorflow-cpu"}
    assert (cpu.installer.name, cpu.installer.version) == ("pip", "26.0")
    assert gpu.base_digest == DIGEST
    assert lock.inputs == lock_inputs(spec_file)
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock


def test_another_tensorflow_package_in_the_requirements_is_left_out_with_a_note(place: Place) -> None:
    events = Events()
    lock = place.lock(place.spec(SPEC.replace("  ps: {}\n", ""), "tensorflow_gpu\nscipy\n"), events)
    assert "scipy" in {wheel.name for wheel in lock.variants[0].wheels}
    assert [
        event.text for event in events if isinstance(event, Note) and "tensorflow_gpu is not installed" in event.text
    ]


@pytest.mark.parametrize(
    ("role", "variant"), [("ps: {}", "cpu"), ("worker: {accelerator: tpu, tpu: {type: TPU_V3, count: 8}}", "tpu")]
)
def test_only_a_gpu_role_gets_cuda_from_the_extra_of_a_shared_requirement(
    place: Place, role: str, variant: str
) -> None:
    cuda = "nvidia-cudnn-cu12"
    add(place.index, cuda, "8.9.7.29")
    for name in ("tensorflow", "tensorflow-cpu"):
        add(place.index, name, "2.15.1", ("numpy<2", f'{cuda}; extra == "and-cuda"'))
    lock = place.lock(place.spec(SPEC.replace("ps: {}", role), "tensorflow[and-cuda]>=2.15 ; python_version > '3'\n"))
    wheels = {locked.variant.name: {wheel.name for wheel in locked.wheels} for locked in lock.variants}
    assert cuda in wheels["gpu"]
    assert cuda not in wheels[variant]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[project]\nname = "x"\nrequires-python = ">=3.9.2,<3.10"\ndependencies = ["scipy"]\n'),
        ("pyproject.toml", '[project]\nname = "x"\nrequires-python = "~=3.9.0"\n'),
        ("pyproject.toml", '[project]\nname = "x"\nrequires-python = "<=3.9"\n'),
    ],
)
def test_the_project_s_own_limit_of_python_counts(place: Place, file: str, text: str) -> None:
    cpu = 'name: mnist\ntensorflow: "2.15.1"\nroles: {master: {}}\n'
    (place.folder / file).write_text(text)
    spec = f"{cpu}requirements: {file}\n"
    lock = place.lock(place.spec(spec))
    assert lock.variants[0].variant.python == "3.9"
    (place.folder / file).write_text(text.replace("3.9", "3.10").replace("<3.10,", "").replace(",<3.10", ""))
    assert lock_inputs(place.spec(spec)) != lock.inputs
    (place.folder / file).write_text(text)
    with pytest.raises(FieldError, match=r"leaves out Python 3\.11") as caught:
        place.lock(place.spec(f'{spec}python: "3.11"\n'))
    assert caught.value.field == "python"
    (place.folder / file).write_text('[project]\nname = "x"\nrequires-python = "<3.8"\n')
    with pytest.raises(FieldError, match=r"<3\.8, and TensorFlow 2\.15\.1 has wheels for Python 3\.9, 3\.10, 3\.11"):
        place.lock(place.spec(spec))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("setup.py", "setup(name='x', python_requires='>=3.9,<3.10')\n"),
        ("setup.cfg", "[options]\npython_requires = >=3.9,<3.10\n"),
    ],
)
def test_a_setup_file_limits_python_too(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    assert read_requirement_files(tmp_path, file) == ((file, "# requires-python >=3.9,<3.10\n-e .\n"),)


def test_the_lock_names_no_index_and_no_secret(place: Place) -> None:
    place.index.login = ("user", "s3cret")
    place.settings = replace(
        place.settings, environ={**place.settings.environ, "UV_INDEX_URL": place.index.with_login()}
    )
    text = dump_lock(place.lock(place.spec(SPEC)))
    assert "s3cret" not in text
    assert "127.0.0.1" not in text
    kept = [path.read_bytes() for path in place.settings.cache.rglob("*") if path.is_file()]
    assert kept
    assert not any(b"s3cret" in data for data in kept)


def test_same_inputs_same_text_and_sizes_are_asked_once(place: Place) -> None:
    spec_file = place.spec(SPEC)
    first = dump_lock(place.lock(spec_file))
    asked = place.index.agents["imgtool"]
    assert asked > 0  # for the sizes, which this index does not list
    assert dump_lock(place.lock(spec_file)) == first
    assert place.index.agents["imgtool"] == asked


def test_locked_wheels_can_be_fetched(place: Place) -> None:
    lock = place.lock(place.spec(SPEC))
    store = WheelStore(place.settings, place.folder)
    for locked in lock.variants:
        store.fetch((*locked.wheels, locked.installer))
        assert all(store.require(wheel).stat().st_size == wheel.size for wheel in locked.wheels)


def test_conflict_names_the_variant_and_shows_uv_s_reasons(place: Place) -> None:
    add(place.index, "fights", "1.0", ("numpy>=2",))
    with pytest.raises(InputError, match=r"gpu \(master\)|cpu \(ps\)") as caught:
        place.lock(place.spec(SPEC, "fights\n"))
    assert caught.value.exit_code == 3
    assert any("numpy" in line for line in caught.value.details)


def test_rules_come_with_their_place(place: Place) -> None:
    with pytest.raises(FieldError, match=r"has no wheel for Python 3\.12") as caught:
        place.lock(place.spec('python: "3.12"\n' + SPEC))
    assert str(caught.value).startswith(f"{place.folder}/image.yaml:1:9: python: ")


def test_requirement_rules_are_asked_before_uv(place: Place) -> None:
    place.index.files.clear()
    with pytest.raises((FieldError, FieldListError), match=r"requirements\.txt:2: setuptools>=82 fights") as caught:
        place.lock(place.spec(SPEC, "scipy\nsetuptools>=82\n"))
    assert "image.yaml:" in str(caught.value)
    assert not place.index.requests


def test_requirements_that_cannot_be_read_have_a_place_too(place: Place) -> None:
    spec_file = place.spec(SPEC, "-r gone.txt\n")
    for make in (lock_inputs, place.lock):
        with pytest.raises(FieldError, match=r"image\.yaml:\d+:\d+: requirements: gone\.txt: No such file"):
            make(spec_file)


def test_warnings_are_told(place: Place) -> None:
    events = Events()
    place.lock(place.spec(SPEC, "tensorflow-cpu==2.15.1\n"), events)
    notes = [event.text for event in events if isinstance(event, Note)]
    assert len(notes) == 1
    assert "tensorflow-cpu==2.15.1 is not installed for master" in notes[0]


@pytest.mark.parametrize(("cuda_from", "is_second"), [("base", True), ("wheels", False)])
def test_a_wheel_of_cuda_beside_that_of_the_base_is_told(place: Place, cuda_from: str, *, is_second: bool) -> None:
    spec_file = place.spec(f"{SPEC}cuda_from: {cuda_from}\n", "nvidia-cudnn-cu12\n")
    events = Events()

    def find_no_base(_: str) -> str:
        raise TemporaryError("no answer")

    with pytest.raises(TemporaryError):  # the rules are asked before
        make_lock(spec_file, place.matrix, find_no_base, place.settings, events)
    told = [event.text for event in events if isinstance(event, Note) and "brings a second CUDA" in event.text]
    assert len(told) == is_second
    assert all("the base nvidia/cuda" in text for text in told)


def test_what_still_fits_is_kept(place: Place) -> None:
    """A package is added after others had newer releases, and after the base's tag moved."""
    before = place.lock(place.spec(SPEC, "scipy\n"))
    for name, version in (("scipy", "1.11.5"), ("numpy", "1.26.5"), ("setuptools", "80.2"), ("pip", "26.1")):
        add(place.index, name, version)
    environ = {**place.settings.environ, "UV_NO_CACHE": "1"}
    place.settings = replace(place.settings, environ=environ)
    spec_file = place.spec(SPEC, "scipy\nhub\n")

    def lock(renewal: Renewal) -> Lock:
        kept = renewal.carry_over(before, before.platform)
        return make_lock(
            spec_file, place.matrix, lambda _: f"sha256:{'b' * 64}", place.settings, Events(), carried_over=kept
        )

    assert set(differences(before, lock(Renewal()))) == {"gpu: + hub 1.0", "cpu: + hub 1.0"}
    renewed = differences(before, lock(Renewal(packages=frozenset({"scipy"}))))
    assert set(renewed) == {f"{name}: {line}" for name in ("gpu", "cpu") for line in ("+ hub 1.0", SCIPY)}
    everything = differences(before, lock(Renewal(everything=True)))
    assert {"cpu: numpy 1.26.4 -> 1.26.5", "cpu: installer pip 26.0 -> 26.1", f"cpu: {SCIPY}"} < set(everything)
    assert "gpu: base digest sha256:aaaaaaaaaaaa -> sha256:bbbbbbbbbbbb" in everything


def test_index_down(place: Place) -> None:
    place.settings = replace(
        place.settings, environ={**place.settings.environ, "UV_INDEX_URL": "http://127.0.0.1:9/simple"}
    )
    with pytest.raises(TemporaryError):
        place.lock(place.spec(SPEC))


def test_old_pythons_get_their_last_pip(place: Place) -> None:
    add(place.index, "tensorflow-cpu", "2.7.4")
    text = SPEC.replace("2.15.1", "2.7.4").replace("{gpus: {type: NVIDIA_TESLA_V100}}", "{}")
    (cpu,) = place.lock(place.spec('python: "3.7"\n' + text)).variants
    assert cpu.installer.version == "24.0"


def test_packages_without_a_wheel_are_made_into_one(place: Place, tmp_path: Path) -> None:
    archive, data = archive_of("gast")
    place.index.add("gast", archive.file, data)
    add(place.index, "tensorflow-cpu", "2.1.4", ("gast==0.2.2",))
    sdists: dict[str, SourceArchive] = {**place.matrix.sdists, "gast==0.2.2": archive}
    place.matrix = replace(place.matrix, sdists=sdists)
    text = SPEC.replace("2.15.1", "2.1.4").replace("{gpus: {type: NVIDIA_TESLA_V100}}", "{}")
    (cpu,) = place.lock(place.spec(text)).variants
    (gast,) = [wheel for wheel in cpu.wheels if wheel.name == "gast"]
    assert gast.file == "gast-0.2.2-py3-none-any.whl"
    assert WheelStore(place.settings).require(gast).is_file()
    assert not tarfile.is_tarfile(WheelStore(place.settings).require(gast))


WHEELS_SPEC = """\
name: mnist
tensorflow: "2.15.1"
python: "3.11"
cuda_from: wheels
roles:
  master: {gpus: {type: NVIDIA_TESLA_V100}}
  ps: {}
"""


def _add_files(index: SimpleIndex, name: str, version: str, files: dict[str, bytes]) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    stream = io.BytesIO(tiny_wheel(name.replace("-", "_"), version))
    with zipfile.ZipFile(stream, "a") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    index.add(name, f"{stem}-py3-none-any.whl", stream.getvalue())


@pytest.mark.parametrize(
    ("trim", "requirements", "unused"),
    [
        ("", "nvidia-nccl-cu12\nlibclang\n", ["clang", "nvidia/nccl/lib/libnccl.so.2"]),
        ("", "nvidia-nccl-cu12\nlibclang\nneeds-nccl\n", ["clang"]),
        ("trim: true\n", "libclang\n", ["clang"]),
        ("trim: false\n", "nvidia-nccl-cu12\nlibclang\n", []),
    ],
)
def test_the_lock_names_what_nothing_opens(place: Place, trim: str, requirements: str, unused: list[str]) -> None:
    _add_files(place.index, "nvidia-nccl-cu12", "2.16.5", {"nvidia/nccl/lib/libnccl.so.2": b"\x7fELF libnccl.so.2"})
    _add_files(place.index, "libclang", "18.1.1", {"clang/native/libclang.so": b"\x7fELF", "clang/cindex.py": b"x = 1"})
    _add_files(place.index, "needs-nccl", "1.0", {"needs_nccl_core.so": b"\x7fELF NEEDED libnccl.so.2"})
    spec_file = place.spec(WHEELS_SPEC + trim, requirements)
    lock = place.lock(spec_file)
    assert {row.variant.name: [path.path for path in row.unused] for row in lock.variants} == {
        "gpu": unused,
        "cpu": unused,
    }
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock
    assert place.lock(spec_file) == lock  # the second time out of the machine's memory


@pytest.mark.parametrize(
    ("trim", "view", "needed"),
    [
        ("", make_library(needed=["libc.so.6", "libGL.so.1", "libown.so"]), ("libGL.so.1",)),
        ("", make_library(needed=["libm.so.6"]), ()),
        ("trim: false\n", make_library(needed=["libGL.so.1"]), None),
    ],
)
def test_the_lock_names_the_libraries_that_no_wheel_brings(
    place: Place, trim: str, view: bytes, needed: tuple[str, ...] | None
) -> None:
    _add_files(place.index, "view", "1.0", {"view_core.so": view})
    _add_files(place.index, "own", "1.0", {"own.libs/libown.so": make_library("libown.so")})
    lock = place.lock(place.spec(WHEELS_SPEC + trim, "view\nown\n"))
    assert [row.needed_libraries for row in lock.variants] == [needed, needed]
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock


def test_an_index_that_says_less_than_its_wheels_is_found_out(place: Place) -> None:
    add(place.index, "scipy", "1.11.9", ("numpy<1.26",))
    place.index.metadata["scipy-1.11.9-py3-none-any.whl"] = b"Metadata-Version: 2.1\nName: scipy\nVersion: 1.11.9\n"
    with pytest.raises(InputError, match=r"scipy 1\.11\.9 requires numpy<1\.26, but 1\.26\.4 is there"):
        place.lock(place.spec(SPEC, "scipy\n"))


def test_releases_for_older_pythons_are_passed_over(place: Place) -> None:
    for version, python in (("1.0", ""), ("1.1", ">=3.6,<3.8"), ("1.2", ">=3.6,<3.9")):
        add(place.index, "typed", version, python=python)
    locked = place.lock(place.spec(SPEC, "typed\n")).variants[0]
    assert [wheel.version for wheel in locked.wheels if wheel.name == "typed"] == ["1.0"]
    with pytest.raises(InputError, match=r"typed 1\.1 requires Python >=3\.6,<3\.8"):
        place.lock(place.spec(SPEC, "typed>1\n"))
    with pytest.raises(InputError, match=r"typed 1\.2 requires Python >=3\.6,<3\.9"):
        place.lock(place.spec(SPEC, "typed==1.2\n"))


def test_a_limit_of_old_that_uv_does_not_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, is_told = threading.Lock(), threading.Event()

    def compile_in_order(*args: Any, **kwargs: Any) -> Any:
        """Lets the second variant fail only when the first has learned what uv cannot read."""
        if kwargs["metadata"]:
            is_told.set()
        try:
            return compile_requirements(*args, **kwargs)
        except UnreadableMetadataError:
            assert failed.acquire(blocking=False) or is_told.wait(30)
            raise

    monkeypatch.setattr("training_imgtool.lock.update.compile_requirements", compile_in_order)
    requires = ("numpy (>=2011k)", "scipy (>=1.0.dev) ; python_version > '3'")
    add(place.index, "older", "0.24.2", requires)
    for locked in place.lock(place.spec(SPEC, "older==0.24.2\n")).variants:
        assert {"older", "numpy", "scipy"} <= {wheel.name for wheel in locked.wheels}


def test_a_yanked_release_is_said(place: Place) -> None:
    add(place.index, "scipy", "1.12.0")
    place.index.yanked["scipy-1.12.0-py3-none-any.whl"] = "deletes\x1b[31m files"
    events = Events()
    lock = place.lock(place.spec(SPEC, "scipy\n"), events)
    assert {wheel.version for wheel in lock.variants[0].wheels if wheel.name == "scipy"} == {"1.11.4"}
    assert not [event for event in events if isinstance(event, Note) and "yanked" in event.text]
    lock = place.lock(place.spec(SPEC, "scipy==1.12.0\n"), events)
    assert "cpu: scipy 1.12.0 was yanked: deletes files; imgtool lock --upgrade takes another if it can" in [
        event.text for event in events if isinstance(event, Note)
    ]
    (wheel,) = (wheel for wheel in lock.variants[0].wheels if wheel.name == "scipy")
    heard = Events()
    WheelStore(replace(place.settings, cache=place.folder / "another machine's")).fetch((wheel,), heard)
    (note,) = (event for event in heard if isinstance(event, Note))
    assert note.text.startswith("scipy-1.12.0-py3-none-any.whl was yanked: deletes")


def test_a_release_that_the_table_does_not_know(place: Place) -> None:
    for name in ("tensorflow", "tensorflow-cpu"):
        file = f"{name.replace('-', '_')}-2.22.0rc0-cp312-cp312-manylinux_2_27_x86_64.whl"
        needs = ("numpy<2", "big ; extra == 'and-cuda'")
        place.index.add(name, file, tiny_wheel(name.replace("-", "_"), "2.22.0rc0", requires=needs))
    add(place.index, "tensorboard", "2.21.0")
    text = SPEC.replace("2.15.1", "2.22.0rc0").replace("{gpus: {type: NVIDIA_TESLA_V100}}", "{}")
    events = Events()
    lock = place.lock(place.spec(text), events)
    (locked,) = lock.variants
    assert (locked.variant.python, locked.variant.package) == ("3.12", "tensorflow-cpu")
    assert {wheel.name: wheel.version for wheel in locked.wheels}["tensorflow-cpu"] == "2.22.0rc0"
    (note,) = (event.text for event in events if isinstance(event, Note) and "2.22.0rc0 is newer" in event.text)
    assert "nobody has tried" in note
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock
    with pytest.raises(
        FieldError, match=r"neither imgtool's table of .* nor the package index has TensorFlow 2\.22\.0"
    ):
        place.lock(place.spec(text.replace("rc0", "")))


def test_a_release_that_nobody_can_ask_about(place: Place) -> None:
    environ = {**place.settings.environ, "UV_INDEX_URL": "http://127.0.0.1:9/simple"}
    place.settings = replace(place.settings, environ=environ)
    with pytest.raises(FieldError, match=r"table of .* has no TensorFlow 2\.99\.0, and"):
        place.lock(place.spec(SPEC.replace("2.15.1", "2.99.0")))


def test_the_metadata_of_a_server_that_sends_no_parts(place: Place) -> None:
    place.index.ranges = False
    padded = tiny_wheel("scipy", "1.11.9", requires=("numpy<1.26",), padding=300_000)
    place.index.add("scipy", "scipy-1.11.9-py3-none-any.whl", padded)
    place.index.metadata["scipy-1.11.9-py3-none-any.whl"] = b"Metadata-Version: 2.1\nName: scipy\nVersion: 1.11.9\n"
    with pytest.raises(InputError, match=r"scipy 1\.11\.9 requires numpy<1\.26, but 1\.26\.4 is there"):
        place.lock(place.spec(SPEC, "scipy\n"))
