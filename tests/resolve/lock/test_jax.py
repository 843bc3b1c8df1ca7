"""Locks of JAX: all that they have comes from the metadata of its wheels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.plans import locked, wheel
from tests.resolve.lock.place import Place, add
from tests.servers.simple_index import tiny_wheel
from training_imgtool.base.context.context import scan
from training_imgtool.base.errors import FieldError, FieldListError
from training_imgtool.model.frameworks import JAX
from training_imgtool.model.spec import Role
from training_imgtool.plan.recipes import make_recipe
from training_imgtool.resolve.frameworks.jax import list_releases
from training_imgtool.resolve.lock.lockfile import dump_lock
from training_imgtool.resolve.lock.parse import parse_lock
from training_imgtool.resolve.wheels.store import WheelStore

SPEC = 'name: m\njax: "0.10.2"\nroles: {master: {}, worker: {count: 2}}\n'
REQUIRES = (
    "jaxlib<=0.10.2,>=0.10.1",
    "numpy>=2.0",
    'jaxlib<=0.10.2,>=0.10.2; extra == "cuda12"',
    'jax-cuda12-plugin[with-cuda]<=0.10.2,>=0.10.2; extra == "cuda12"',
    'jax-cuda13-plugin<=0.10.2,>=0.10.2; extra == "cuda13"',
    'libtpu==0.0.42.*; extra == "tpu"',
)
CUDA = tuple(f'nvidia-{name}-cu12; extra == "with-cuda"' for name in ("cuda-runtime", "cudnn"))


@pytest.fixture
def jax(place: Place) -> Place:
    """An index with a JAX of a few bytes for Python 3.11 and 3.12, on x86_64; CUDA 13 for 3.12 alone."""
    index = place.index
    index.add("jax", "jax-0.10.2-py3-none-any.whl", tiny_wheel("jax", "0.10.2", requires=REQUIRES, python=">=3.11"))
    for python in ("310", "311", "312"):
        for name, version in (("jaxlib", "0.10.1"), ("jaxlib", "0.10.2"), ("jax_cuda12_plugin", "0.10.2")):
            file = f"{name}-{version}-cp{python}-cp{python}-manylinux_2_27_x86_64.whl"
            requires = CUDA if "cuda" in name else ()
            index.add(name.replace("_", "-"), file, tiny_wheel(name, version, requires=requires))
    file = "jaxlib-0.10.2-cp311-cp311-manylinux_2_27_aarch64.whl"
    index.add("jaxlib", file, tiny_wheel("jaxlib", "0.10.2"))
    file = "jax_cuda13_plugin-0.10.2-cp312-cp312-manylinux_2_27_x86_64.whl"
    index.add("jax-cuda13-plugin", file, tiny_wheel("jax_cuda13_plugin", "0.10.2"))
    for name, version in [
        ("libtpu", "0.0.42.1"),
        ("nvidia-cuda-runtime-cu12", "12.9.79"),
        ("nvidia-cudnn-cu12", "9.28.0.42"),
        ("keras", "3.15.1"),
        ("keras", "2.15.0"),
    ]:
        add(index, name, version)
    add(index, "old", "1.0", ("keras<3",))
    add(index, "brings-tensorflow", "1.0", ("tensorflow", "numpy>=1.26"))
    return place


@pytest.mark.parametrize(
    ("more", "requirement", "python"),
    [
        ("", "jax==0.10.2", "3.12"),
        ("accelerator: gpu\n", "jax[cuda12]==0.10.2", "3.12"),
        ('accelerator: gpu\ncuda: "13"\n', "jax[cuda13]==0.10.2", "3.12"),
        ("platform: linux/arm64\n", "jax==0.10.2", "3.11"),
        ('python: "3.11"\n', "jax==0.10.2", "3.11"),
    ],
)
def test_python_and_extra_come_from_the_wheels(jax: Place, more: str, requirement: str, python: str) -> None:
    lock = jax.lock(jax.spec(SPEC + more))
    (locked_variant,) = lock.variants
    variant = locked_variant.variant
    assert (variant.framework, variant.release, variant.python) == (JAX, "0.10.2", python)
    assert variant.requirements[0] == requirement
    assert variant.base == f"python:{python}-slim-bookworm"
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock


OLD = SPEC.replace("0.10.2", "0.4.20")


@pytest.fixture
def old_jax(jax: Place) -> Place:
    """The same index with a JAX that requires jaxlib by extras only, as 0.4.16 to 0.4.29 do."""
    requires = ("numpy>=1.22", 'jaxlib==0.4.20; extra == "cpu"', 'jaxlib==0.4.20; extra == "tpu"')
    jax.index.add("jax", "jax-0.4.20-py3-none-any.whl", tiny_wheel("jax", "0.4.20", requires=requires))
    for python in ("310", "311"):
        file = f"jaxlib-0.4.20-cp{python}-cp{python}-manylinux2014_x86_64.whl"
        jax.index.add("jaxlib", file, tiny_wheel("jaxlib", "0.4.20"))
    return jax


def test_a_release_that_requires_jaxlib_by_an_extra(old_jax: Place) -> None:
    (one,) = old_jax.lock(old_jax.spec(OLD)).variants
    assert (one.variant.python, one.variant.requirements[0]) == ("3.11", "jax[cpu]==0.4.20")
    assert "jaxlib" in {wheel.name for wheel in one.wheels}
    message = r"image.yaml:2:6: jax: JAX 0.4.20 has no extra cuda12"
    with pytest.raises(FieldError, match=message):
        old_jax.lock(old_jax.spec(OLD + "accelerator: gpu\n"))


def test_cuda_is_that_of_the_wheels(jax: Place) -> None:
    (locked_variant,) = jax.lock(jax.spec(SPEC + "accelerator: gpu\n")).variants
    assert (locked_variant.variant.cuda, locked_variant.variant.cudnn) == ("12.9.79", "9.28.0")


@pytest.mark.parametrize(
    ("more", "requirements", "message"),
    [
        ("", "keras==2.15.0\n", "Keras 2.15.0 does not run on JAX"),
        ("", "brings-tensorflow\n", "brings-tensorflow requires tensorflow 2.15.0, and JAX does not need it"),
        ("", "numpy<2\n", "numpy<2 fights JAX 0.10.2, which needs numpy>=2.0"),
        ("", "jax==0.9.0\n", "jax==0.9.0 is not the spec's JAX 0.10.2"),
        ("", "jax-metal\n", "jax-metal is another JAX than the spec's 0.10.2"),
        ('python: "3.10"\n', "", "JAX 0.10.2 has no wheel for Python 3.10"),
        ("platform: linux/arm64\naccelerator: gpu\n", "", "JAX 0.10.2 has no wheels with cuda12 for linux/arm64"),
        (
            'accelerator: gpu\ncuda: "13"\n',
            "V100",
            "JAX's wheels for CUDA 13 have no code for V100",
        ),
    ],
)
def test_what_does_not_go_together(jax: Place, more: str, requirements: str, message: str) -> None:
    text = SPEC.replace("master: {}", "master: {gpus: {type: NVIDIA_TESLA_V100}}") if requirements == "V100" else SPEC
    spec_file = jax.spec(text + more, None if requirements == "V100" else requirements)
    with pytest.raises((FieldError, FieldListError)) as caught:
        jax.lock(spec_file)
    assert message in str(caught.value)


def test_what_comes_with_a_tensorflow_that_the_requirements_name(jax: Place) -> None:
    add(jax.index, "tf-keras", "2.15.0")
    add(jax.index, "tensorflow-cpu", "2.18.0")
    add(jax.index, "tensorflow-hub", "0.16.1", ("tf-keras",))
    with pytest.raises(FieldError, match="tensorflow-hub requires tf-keras"):
        jax.lock(jax.spec(SPEC, "tensorflow-hub\n"))
    (one,) = jax.lock(jax.spec(SPEC, "tensorflow-hub\ntensorflow-cpu==2.18.0\n")).variants
    assert "tf-keras" in {wheel.name for wheel in one.wheels}


def test_a_release_that_no_index_has(jax: Place) -> None:
    with pytest.raises(FieldError, match=r"yaml:2:6: jax: the package index has no wheel of JAX 0.10.99") as caught:
        jax.lock(jax.spec(SPEC.replace("0.10.2", "0.10.99")))
    assert caught.value.hint == "the index has 0.10.2"


@pytest.mark.parametrize(
    ("keras", "own", "backend"),
    [("3.15.1", "", "jax"), ("3.15.1", "env: {KERAS_BACKEND: torch}\n", "torch"), (None, "", None)],
)
def test_keras_3_is_told_its_backend(jax: Place, keras: str | None, own: str, backend: str | None) -> None:
    spec_file = jax.spec(SPEC + own)
    wheels = (wheel("jax", "0.10.2"), *((wheel("keras", keras),) if keras else ()))
    of_jax = locked(package="jax", tensorflow=None, jax="0.10.2", wheels=wheels)
    recipe = make_recipe(spec_file, Role.MASTER, of_jax, scan(spec_file.folder), exclude=(), settings=jax.settings)
    assert recipe.env.get("KERAS_BACKEND") == backend
    assert recipe.labels["dev.imgtool.jax"] == "0.10.2"


def test_wheels_of_others_in_a_folder_count_for_nothing(jax: Place, tmp_path: Path) -> None:
    (tmp_path / "jaxlib_other-0.10.2-cp313-cp313-manylinux_2_17_x86_64.whl").touch()
    jax.settings = replace(jax.settings, environ={**jax.settings.environ, "UV_FIND_LINKS": str(tmp_path)})
    (locked_variant,) = jax.lock(jax.spec(SPEC)).variants
    assert locked_variant.variant.python == "3.12"


def test_the_releases_of_the_index_are_listed_with_their_pythons(jax: Place) -> None:
    jax.index.add("jax", "jax-0.11.0-py3-none-any.whl", b"")
    assert list_releases(WheelStore(jax.settings).index) == [
        {"release": "0.11.0", "python": [], "python_arm64": []},
        {"release": "0.10.2", "python": ["3.10", "3.11", "3.12"], "python_arm64": ["3.11"]},
    ]
