"""The lock's text: round trip, strict reading, what its hash depends on, and what a change says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from training_imgtool.base.errors import InputError
from training_imgtool.model.load import load
from training_imgtool.model.lock import (
    DebianPackage,
    Lock,
    LockedDebian,
    LockedVariant,
    Source,
    UnusedPath,
    Variant,
    Wheel,
)
from training_imgtool.model.spec import Accelerator, Gpus, ImageSpec, Role, RoleSpec
from training_imgtool.resolve.lock.lockfile import (
    dump_lock,
    inputs_hash,
    list_changed,
    lock_path,
    read_lock,
)
from training_imgtool.resolve.lock.parse import parse_lock


def wheel(name: str, version: str = "1.0", digit: str = "a") -> Wheel:
    return Wheel(
        name=name,
        version=version,
        file=f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
        sha256=digit * 64,
        size=1234,
    )


CPU = LockedVariant(
    variant=Variant(
        name="cpu",
        roles=(Role.MASTER, Role.PS),
        accelerator=Accelerator.CPU,
        package="tensorflow-cpu",
        tensorflow="2.15.1",
        python="3.10",
        cuda=None,
        cudnn=None,
        base="python:3.10-slim-bookworm",
        os="debian12",
        python_from="image",
        python_executable="/usr/local/bin/python3.10",
        requirements=("tensorflow-cpu==2.15.1",),
        constraints=("setuptools<81", "protobuf!=4.21.0,<5"),
        libraries=(),
    ),
    base_digest="sha256:" + "b" * 64,
    installer=wheel("pip", "26.0"),
    wheels=(wheel("absl-py"), wheel("numpy", "1.26.4")),
)
GPU = LockedVariant(
    variant=replace(
        CPU.variant,
        name="gpu",
        roles=(Role.WORKER,),
        accelerator=Accelerator.GPU,
        package="tensorflow",
        cuda="12.3.2",
        cudnn="8.9.7.29",
        base="127.0.0.1:5000/nvidia/cuda:12.3.2-runtime-ubuntu22.04",
        os=None,
        python_from="apt",
        python_executable="/usr/bin/python3.10",
        libraries=("libcudart.so.12", "libcudnn.so.8"),
        apt=("libcudnn8=8.9.7.29-1+cuda12.2",),
        notes=('a note with "quotes", a back\\slash and ü',),
    ),
    base_digest="sha256:" + "c" * 64,
    installer=wheel("pip", "26.0"),
    wheels=(wheel("numpy", "1.26.4"),),
)
LOCK = Lock(inputs=f"tensorflow={'d' * 16}", platform="linux/amd64", variants=(CPU, GPU))


@pytest.mark.parametrize(
    ("spec", "lock"),
    [
        ("image.yaml", "image.lock"),
        ("a/gpu.yml", "a/gpu.lock"),
        ("v1.2.yaml", "v1.2.lock"),
        ("gpu.lock", "gpu.lock.lock"),
    ],
)
def test_a_lock_has_the_name_of_its_spec(spec: str, lock: str, tmp_path: Path) -> None:
    path = tmp_path / spec
    path.parent.mkdir(exist_ok=True)
    path.write_text('name: a\ntensorflow: "2.15.1"\nroles: {master: {}}\n')
    (path.parent / "trainer").mkdir()
    (path.parent / "trainer/task.py").touch()
    assert lock_path(load(path)) == tmp_path / lock


def test_values_of_the_command_line_have_a_lock_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "image.yaml"
    path.write_text('name: a\ntensorflow: "2.15.1"\nroles: {master: {}}\n')
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").touch()
    spec_file = load(path, {"tensorflow": "2.16.2", "python": "3.11"})
    assert (spec_file.spec.tensorflow, spec_file.spec.python) == ("2.16.2", "3.11")
    assert lock_path(spec_file) == tmp_path / "image.tensorflow-2.16.2.python-3.11.lock"
    assert lock_path(load(path, {"user": "1000"})) == tmp_path / "image.lock"  # the lock does not depend on it


BY_ENGINE = LockedDebian(requested=("libx",), engine="libx: its script needs an engine")


@pytest.mark.parametrize("lock", [LOCK, replace(LOCK, variants=(replace(CPU, debian=BY_ENGINE), GPU))])
def test_round_trip(tmp_path: Path, lock: Lock) -> None:
    path = tmp_path / "image.lock"
    path.write_text(dump_lock(lock))
    assert read_lock(path) == lock
    assert dump_lock(read_lock(path)) == dump_lock(lock)


def test_text_has_a_line_per_wheel_and_no_url() -> None:
    text = dump_lock(LOCK)
    assert text.endswith("]\n")
    assert text.count(".whl") == text.count("\n  {") + 2  # and each variant's installer
    assert "://" not in text


def test_wheels_are_written_in_order_of_name() -> None:
    shuffled = replace(LOCK, variants=(replace(CPU, wheels=CPU.wheels[::-1]), GPU))
    assert dump_lock(shuffled) == dump_lock(LOCK)


TEXT = dump_lock(LOCK)
BAD = [
    ("version = 2\n", "version = 3\n", "newer imgtool"),
    ("version = 2\n", "", "version: expected 2"),
    ("inputs =", "input =", "input: unknown key"),
    ('inputs = "', 'inputs = "= ', "inputs: expected"),
    ("linux/amd64", "linux", "platform: expected"),
    ("package =", "pakage =", r"variant\[0\].pakage: unknown key"),
    ('python = "3.10"', "python = 3.10", r"variant\[0\].python: expected .*, found 3.1"),
    ('"/usr/local/bin/python3.10"', '"/usr/local/bin/python3.10; reboot"', "python_executable: expected"),
    ("absl_py-1.0-py3-none-any.whl", "../absl-py-1.0.whl", r"wheels\[0\].file: expected"),
    ("absl_py-1.0-py3-none-any.whl", "a.tar.gz", r"wheels\[0\]: a.tar.gz is not a wheel"),
    ("absl_py-1.0-py3", "absl_py-1.0.1-py3", r"wheels\[0\]: absl_py-1.0.1-.* is not a wheel of absl-py 1.0"),
    ("size = 1234", 'size = "1234"', "size: expected a number"),
    ("size = 1234", "size = -1", "size: expected a number"),
    ("a" * 64, "a" * 63, "sha256: expected"),
    ("sha256:" + "b" * 64, "sha256:b", "base_digest: expected"),
    ('base = "python:3.10-slim-bookworm"', 'base = "Python:3.10"', "lower case|repository path"),
    ('"master", "ps"', '"master", "boss"', "boss"),
    ('roles = ["worker"]', 'roles = ["ps"]', "ps appears twice"),
    ('name = "gpu"', 'name = "cpu"', "cpu appears twice"),
    ('"libcudnn.so.8"', '"libcudnn.so.8; x"', "libraries"),
    ('"setuptools<81"', '"setuptools<81\\nRUN x"', "constraints"),
    ("wheels = [", "<<<<<<< HEAD\nwheels = [", "not a lock"),
    ("wheels = [", "wheels = [[], ", r"wheels\[0\]: expected a table with name"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_what_is_not_a_lock_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError, match=message) as caught:
        parse_lock(TEXT.replace(old, new, 1).encode(), "image.lock")
    assert str(caught.value).startswith("image.lock: ")
    assert caught.value.exit_code == 3


PACKAGES = LockedDebian(
    requested=("libx", "liby"),
    packages=tuple(
        DebianPackage(
            name=name, version="1:2.3-4", architecture="amd64", size=7, sha256=digit * 64, file=f"p/{name}.deb"
        )
        for name, digit in (("libx", "1"), ("liby", "2"))
    ),
)
UNUSED = (UnusedPath(path="clang", size=9, rule="libclang"), UnusedPath(path="x/include", size=8, rule="headers"))
BUILT = replace(wheel("absl-py"), source=Source(origin="./absl"))
LOCKS = {
    "two": LOCK,
    "engine": replace(LOCK, variants=(replace(CPU, debian=BY_ENGINE), GPU)),
    "debian": replace(LOCK, variants=(replace(CPU, debian=PACKAGES),)),
    "trimmed": replace(LOCK, variants=(replace(GPU, unused=UNUSED),)),
    "libraries": replace(LOCK, variants=(replace(GPU, needed_libraries=("libGL.so.1", "libz-1.so")),)),
    "no libraries": replace(LOCK, variants=(replace(CPU, needed_libraries=()),)),
    "arm": replace(LOCK, platform="linux/arm64", variants=(replace(CPU, wheels=(BUILT, *CPU.wheels[1:])),)),
}
ROWS = [
    pytest.param(name, number, id=f"{name} {number}")
    for name, lock in LOCKS.items()
    for number, line in enumerate(dump_lock(lock).splitlines())
    if line
]


@pytest.mark.parametrize(("name", "number"), ROWS)
def test_a_row_that_is_lost_doubled_or_swapped_is_refused(name: str, number: int) -> None:
    """As a merge by Git leaves it, without a word."""
    text = dump_lock(LOCKS[name])
    assert parse_lock(text.encode(), "image.lock") == LOCKS[name]
    lines = text.splitlines()
    swapped = [*lines]
    swapped[number - 1], swapped[number] = lines[number], lines[number - 1]
    for damaged in (lines[:number] + lines[number + 1 :], [*lines[: number + 1], *lines[number:]], swapped):
        with pytest.raises(InputError):
            parse_lock("\n".join([*damaged, ""]).encode(), "image.lock")


def test_a_package_that_is_there_twice_is_refused_whatever_the_sum_says() -> None:
    for twice in (wheel("numpy", "1.26.3"), wheel("NumPy", "1.26.4"), wheel("numpy", "1.26.4")):
        text = dump_lock(replace(LOCK, variants=(replace(CPU, wheels=(*CPU.wheels, twice)), GPU)))
        with pytest.raises(InputError, match=r"variant\[0\].wheels: numpy appears twice"):
            parse_lock(text.encode(), "image.lock")


def test_line_ends_of_another_system_are_the_same_lock() -> None:
    assert parse_lock(TEXT.replace("\n", "\r\n").encode(), "image.lock") == LOCK


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_lock(tmp_path / "image.lock")
    with pytest.raises(InputError, match="not a lock"):
        parse_lock(b"\xff\xfe", "image.lock")
    with pytest.raises(InputError, match=r"variant: expected at least one"):
        parse_lock(TEXT.partition("[[variant]]")[0].encode(), "image.lock")


def test_syntax_error_names_the_line() -> None:
    with pytest.raises(InputError, match=r"line 3"):
        parse_lock(TEXT.replace('inputs = "', "inputs = ", 1).encode(), "image.lock")


SPEC = ImageSpec(
    name="mnist",
    tensorflow="2.15.1",
    accelerator=Accelerator.GPU,
    roles={Role.MASTER: RoleSpec(), Role.PS: RoleSpec()},
)
TEXTS = (("requirements.txt", "scipy\n"),)


def test_inputs_hash_depends_on_what_matters_only() -> None:
    def hashed(spec: ImageSpec = SPEC, texts: tuple[tuple[str, str], ...] = TEXTS, matrix: str = "1") -> str:
        return inputs_hash(spec, texts, matrix)

    base = hashed()
    assert list_changed(base, base) == ()
    renamed = hashed(replace(SPEC, tensorflow="2.15.0"), texts=(("my packages.txt", "scipy\n"),))
    assert list_changed(base, renamed) == ("tensorflow", "my packages.txt", "requirements.txt")
    assert base == hashed(replace(SPEC, roles={Role.PS: RoleSpec(), Role.MASTER: RoleSpec()}))
    same = [
        replace(SPEC, name="other"),
        replace(SPEC, args=("--epochs=1",)),
        replace(SPEC, env={"A": "b"}),
        replace(SPEC, roles={Role.MASTER: RoleSpec(), Role.PS: RoleSpec(count=3, machine="n1-highmem-8")}),
    ]
    assert [hashed(spec) for spec in same] == [base] * len(same)
    other = [
        hashed(replace(SPEC, tensorflow="2.15.0")),
        hashed(replace(SPEC, system_packages=("libgomp1",))),
        hashed(replace(SPEC, python="3.11")),
        hashed(replace(SPEC, platform="linux/arm64")),
        hashed(replace(SPEC, cuda_from="wheels")),
        hashed(replace(SPEC, base="python:3.10")),
        hashed(replace(SPEC, accelerator=Accelerator.CPU)),
        hashed(replace(SPEC, roles={Role.MASTER: RoleSpec()})),
        hashed(replace(SPEC, roles={Role.MASTER: RoleSpec(base="a"), Role.PS: RoleSpec()})),
        hashed(replace(SPEC, roles={Role.MASTER: RoleSpec(gpus=Gpus(type="NVIDIA_L4")), Role.PS: RoleSpec()})),
        hashed(replace(SPEC, roles={Role.MASTER: RoleSpec(gpus=Gpus(type="NVIDIA_B200")), Role.PS: RoleSpec()})),
        hashed(texts=()),
        hashed(texts=(("requirements.txt", "scipy \n"),)),
        hashed(matrix="2"),
    ]
    assert len({base, *other}) == len(other) + 1


def test_another_trim_is_another_lock() -> None:
    plain = ImageSpec(name="a", tensorflow="2.15.1", roles={Role.MASTER: RoleSpec()})
    assert len({inputs_hash(replace(plain, trim=trim), (), "1") for trim in (None, True, False)}) == 3
