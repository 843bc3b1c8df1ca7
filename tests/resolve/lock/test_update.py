"""Making a lock, against an index on loopback that has a TensorFlow of a few bytes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.resolve.lock.place import DIGEST, SPEC, Events, Place, add
from tests.servers.simple_index import SimpleIndex, serving, tiny_wheel
from training_imgtool.base.errors import FieldError, FieldListError, InputError, TemporaryError
from training_imgtool.base.progress import Note
from training_imgtool.model.lock import Lock
from training_imgtool.model.requirement_files import read_requirement_files, read_texts
from training_imgtool.model.requirements import index_options
from training_imgtool.resolve.lock.carry_over import Renewal
from training_imgtool.resolve.lock.lockfile import dump_lock, list_changed, lock_inputs
from training_imgtool.resolve.lock.parse import parse_lock
from training_imgtool.resolve.lock.update import make_lock
from training_imgtool.resolve.wheels.store import WheelStore

SCIPY = "scipy 1.11.4 -> 1.11.5"


def test_a_lock_of_two_variants(place: Place) -> None:
    spec_file = place.spec(SPEC, "scipy\nhub\n")
    lock = place.lock(spec_file)
    gpu, cpu = lock.variants
    assert (gpu.variant.name, cpu.variant.name) == ("gpu", "cpu")
    assert {wheel.name: wheel.version for wheel in gpu.wheels} == {
        "dumb-init": "1.2.5.post1",
        "hub": "1.0",
        "numpy": "1.26.4",
        "nvidia-cuda-nvcc-cu12": "12.2.140",
        "scipy": "1.11.4",
        "setuptools": "80.1",  # held back: 82 has no pkg_resources
        "tensorflow": "2.15.1",
    }
    # hub asks for `tensorflow`, which tensorflow-cpu is here: the wheel would write the same files twice
    assert {wheel.name for wheel in cpu.wheels} == {
        "dumb-init",
        "hub",
        "numpy",
        "scipy",
        "setuptools",
        "tensorflow-cpu",
    }
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


def test_conflict_names_the_variant_and_shows_uv_s_reasons(place: Place) -> None:
    add(place.index, "fights", "1.0", ("numpy>=2",))
    with pytest.raises(InputError, match=r"gpu \(master\)|cpu \(ps\)") as caught:
        place.lock(place.spec(SPEC, "fights\n"))
    assert caught.value.exit_code == 3
    assert any("numpy" in line for line in caught.value.details)


def test_a_name_that_the_index_lacks_has_its_line_and_the_nearest_name(place: Place) -> None:
    with pytest.raises(
        FieldError, match=r": requirements: requirements\.txt:2: the package index has no nunpy"
    ) as caught:
        place.lock(place.spec(SPEC, "scipy\nnunpy==1\n"))
    assert str(caught.value.hint).startswith("did you mean numpy? Else correct the name")


def test_keras_2_that_the_environment_asks_for_is_there(place: Place) -> None:
    asking = f"{SPEC}env: {{TF_USE_LEGACY_KERAS: '1'}}\n"
    with pytest.raises(FieldError, match=r"env\.TF_USE_LEGACY_KERAS: .*the package tf-keras") as caught:
        place.lock(place.spec(asking))
    assert str(caught.value.hint).startswith("add tf-keras==2.15.* ")
    assert lock_inputs(place.spec(asking)) != lock_inputs(place.spec(SPEC))
    add(place.index, "tf-keras", "2.15.1")
    place.lock(place.spec(asking, "tf-keras\n"))


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock"])
def test_the_lock_of_the_projects_own_tool_is_followed_where_it_fits(place: Place, name: str) -> None:
    add(place.index, "scipy", "1.10.0")
    rows = [("scipy", "1.10.0"), ("numpy", "2.1.0"), ("hub", "1.0"), ("hub", "2.0")]
    text = "".join(f'[[package]]\nname = "{package}"\nversion = "{version}"\n\n' for package, version in rows)
    (place.folder / "pyproject.toml").write_text('[project]\nname = "a"\ndependencies = ["scipy", "hub"]\n')
    spec_file = place.spec(f"{SPEC}requirements: pyproject.toml\n")
    before = lock_inputs(spec_file)
    (place.folder / name).write_text(text)
    lock = place.lock(spec_file)
    assert lock.inputs == lock_inputs(spec_file)
    assert list_changed(before, lock.inputs) == (name,)
    versions = {wheel.name: wheel.version for wheel in lock.variants[0].wheels}
    assert (versions["scipy"], versions["numpy"]) == ("1.10.0", "1.26.4")  # TensorFlow takes no other NumPy


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

    def changed(renewal: Renewal) -> list[dict[str, str]]:
        """The packages of each variant that the renewed lock has in another version, or anew."""
        made = lock(renewal)
        return [
            {
                wheel.name: wheel.version
                for wheel in (*new.wheels, new.installer)
                if wheel not in (*old.wheels, old.installer)
            }
            for old, new in zip(before.variants, made.variants, strict=True)
        ]

    assert changed(Renewal()) == [{"hub": "1.0"}] * 2
    assert changed(Renewal(packages=frozenset({"scipy"}))) == [{"hub": "1.0", "scipy": "1.11.5"}] * 2
    for packages in changed(Renewal(everything=True)):
        assert packages.items() >= {"numpy": "1.26.5", "pip": "26.1", "scipy": "1.11.5"}.items()
    assert {row.base_digest for row in lock(Renewal()).variants} == {f"sha256:{'a' * 64}"}
    assert {row.base_digest for row in lock(Renewal(everything=True)).variants} == {f"sha256:{'b' * 64}"}


def test_old_pythons_get_their_last_pip(place: Place) -> None:
    add(place.index, "tensorflow-cpu", "2.7.4")
    text = SPEC.replace("2.15.1", "2.7.4").replace("{gpus: {type: NVIDIA_TESLA_V100}}", "{}")
    (cpu,) = place.lock(place.spec('python: "3.7"\n' + text)).variants
    assert cpu.installer.version == "24.0"


@pytest.mark.parametrize("explicit", ["true", "false"])
def test_a_package_of_one_index_comes_from_no_other(place: Place, explicit: str) -> None:
    """Not even if the usual index, which serves everything else, has a newer release."""
    project = f"""[project]
name = "p"
version = "1"
dependencies = ["ours>=1", "scipy"]
[tool.uv.sources]
ours = {{ index = "team" }}
[[tool.uv.index]]
name = "team"
url = "URL"
explicit = {explicit}
"""
    place.index.add("ours", "ours-9.0-py3-none-any.whl", tiny_wheel("ours", "9.0"))
    with serving(SimpleIndex()) as team:
        own = tiny_wheel("ours", "1.5")
        team.add("ours", "ours-1.5-py3-none-any.whl", own)
        team.add("scipy", "scipy-99.0-py3-none-any.whl", tiny_wheel("scipy", "99.0")) if explicit == "true" else None
        (place.folder / "pyproject.toml").write_text(project.replace("URL", team.url))
        spec_file = place.spec(SPEC.replace("  ps: {}\n", "") + "requirements: pyproject.toml\n")
        lock = place.lock(spec_file)
        wheels = {wheel.name: wheel for wheel in lock.variants[0].wheels}
        assert (wheels["ours"].version, wheels["scipy"].version) == ("1.5", "1.11.4")
        assert wheels["ours"].sha256 == hashlib.sha256(own).hexdigest()
        store = WheelStore(place.settings, options=lambda: index_options(place.folder, read_texts(spec_file)))
        assert store.index.locate("ours", "ours-1.5-py3-none-any.whl", wheels["ours"].sha256)
        assert not [file for file in store.index.files("ours") if "9.0" in file.file]
        assert team.url not in dump_lock(lock)


def test_a_pair_that_does_not_import_is_avoided_unless_the_requirements_demand_it(place: Place) -> None:
    for version in ("25.0.0", "26.0.1"):
        add(place.index, "pyarrow", version)
    one = SPEC.replace("  ps: {}\n", "")
    for requirements, version, said in (
        ("pyarrow\n", "25.0.0", None),
        ("pyarrow>=26\n", "26.0.1", "pyarrow 26.0.1 does not import beside numpy 1.26.4"),
    ):
        (variant,) = place.lock(place.spec(one, requirements)).variants
        assert next(wheel.version for wheel in variant.wheels if wheel.name == "pyarrow") == version
        assert [note for note in variant.variant.notes if "pyarrow" in note] == ([said] if said else [])
