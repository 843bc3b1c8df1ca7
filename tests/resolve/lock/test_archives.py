"""Locks with source archives: pure ones are built, the others named together with what they hold back."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from tests.resolve.lock.place import Events, Place, add
from tests.resolve.wheels.archives import source_archive
from tests.servers.simple_index import SimpleIndex, serving, tiny_wheel
from training_imgtool.base.errors import FieldError, InputError, VerificationError
from training_imgtool.base.progress import Note
from training_imgtool.model.lock import Wheel
from training_imgtool.model.requirements import index_options
from training_imgtool.resolve.lock.lockfile import dump_lock
from training_imgtool.resolve.lock.parse import parse_lock
from training_imgtool.resolve.wheels.interpreters import find_interpreter
from training_imgtool.resolve.wheels.store import WheelStore

SPEC = 'name: mnist\ntensorflow: "2.15.1"\npython: "3.11"\nroles: {master: {}}\n'


@pytest.fixture
def archives(place: Place) -> Place:
    """`top` 1.0 needs `dep`, which has no wheel; `top` 0.1 needs nothing."""
    if find_interpreter("3.11", place.settings.environ) is None:
        pytest.skip("Python 3.11 is not on this machine")
    add(place.index, "top", "0.1")
    add(place.index, "top", "1.0", ("dep>=2",))
    place.index.add("dep", "dep-2.0.tar.gz", source_archive("dep", "2.0", requires=("numpy",)))
    return place


def locked(place: Place, spec: str = SPEC, requirements: str = "top\n") -> tuple[dict[str, Wheel], list[str]]:
    """The lock's wheels by name after a round trip through the file, and the notes."""
    events = Events()
    lock = place.lock(place.spec(spec, requirements), events)
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock
    notes = [event.text for event in events if isinstance(event, Note)]
    return {wheel.name: wheel for wheel in lock.variants[0].wheels}, notes


def test_a_pure_archive_is_built_and_locked_with_its_wheel(archives: Place) -> None:
    wheels, notes = locked(archives)
    assert (wheels["top"].version, wheels["dep"].version, notes) == ("1.0", "2.0", [])
    source = wheels["dep"].source
    assert source is not None
    assert source.origin == "dep-2.0.tar.gz"
    assert "numpy" in wheels
    assert wheels["top"].source is None


def test_the_hash_of_an_archive_in_the_requirements_admits_its_wheel_and_no_other(archives: Place) -> None:
    """As `uv export` and pip-compile write it."""
    archive = hashlib.sha256(archives.index.files["dep"]["dep-2.0.tar.gz"]).hexdigest()
    wheels, _ = locked(archives, requirements=f"dep==2.0 --hash=sha256:{archive}\n")
    assert wheels["dep"].source is not None
    with pytest.raises(InputError, match=r"dep 2\.0 has no wheel with one of the hashes in the requirements"):
        locked(archives, requirements=f"dep==2.0 --hash=sha256:{'0' * 64}\n")


def test_another_machine_takes_the_wheel_from_the_registry_and_builds_none(archives: Place) -> None:
    wheel = locked(archives)[0]["dep"]
    first = WheelStore(archives.settings).require(wheel).read_bytes()
    fresh = replace(archives.settings, cache=archives.folder / "other")
    with pytest.raises(VerificationError, match=r"which another machine built from dep-2\.0\.tar\.gz"):
        WheelStore(fresh).fetch([wheel])
    WheelStore(fresh, read_artifact=lambda _: iter((first,))).fetch([wheel])
    assert WheelStore(fresh).require(wheel).read_bytes() == first
    poisoned = replace(archives.settings, cache=archives.folder / "fourth")
    with pytest.raises(VerificationError, match="the lock says"):
        WheelStore(poisoned, read_artifact=lambda _: iter((first[::-1],))).fetch([wheel])


@pytest.mark.parametrize(
    ("spec", "body", "reason"),
    [
        (SPEC + "sdists: refuse\n", "pass", "the spec says `sdists: refuse`"),
        (SPEC, "raise SystemExit(\"command 'gcc' failed\")", "it needs a compiler"),
        (SPEC, "raise ValueError('no')", "its build fails: ValueError: no"),
    ],
)
def test_what_an_archive_holds_back_is_named(archives: Place, spec: str, body: str, reason: str) -> None:
    archives.index.add("dep", "dep-2.0.tar.gz", source_archive("dep", "2.0", body=body))
    wheels, notes = locked(archives, spec)
    assert wheels["top"].version == "0.1"
    assert "dep" not in wheels
    assert notes == [f"cpu: top 0.1 instead of 1.0: dep 2.0 has no wheel, and {reason}"]


def test_an_archive_that_is_needed_and_cannot_be_built_is_refused_with_the_cure(archives: Place) -> None:
    archives.index.add("dep", "dep-2.0.tar.gz", source_archive("dep", "2.0", tag="cp311-cp311-linux_x86_64"))
    with pytest.raises(InputError, match=r"dep 2\.0: it needs a compiler") as caught:
        locked(archives, requirements="dep\n")
    assert "UV_FIND_LINKS" in (caught.value.hint or "")


def test_no_code_of_an_archive_runs_while_uv_resolves(archives: Place) -> None:
    """Under `sdists: refuse` nothing is built; the backend would leave a file."""
    mark = archives.folder / "ran"
    archives.index.add("dep", "dep-2.0.tar.gz", source_archive("dep", "2.0", body=f"open({str(mark)!r}, 'w')"))
    locked(archives, SPEC + "sdists: refuse\n")
    assert not mark.exists()


def test_a_local_wheel_and_a_relative_folder_serve_on_another_machine(archives: Place) -> None:
    """Both are found by hash beside the spec, also where nothing is cached."""
    for folder, name in (("wheels", "mine"), ("vendor", "other")):
        (archives.folder / folder).mkdir()
        data = tiny_wheel(name, "1.0", requires=("scipy",))
        (archives.folder / folder / f"{name}-1.0-py3-none-any.whl").write_bytes(data)
    lines = "./wheels/mine-1.0-py3-none-any.whl\n--find-links ./vendor\nother\n"
    wheels, notes = locked(archives, requirements=lines)
    assert {"mine", "other", "scipy"} <= set(wheels)
    assert notes == []
    texts = (("requirements.txt", lines),)
    fresh = WheelStore(
        replace(archives.settings, cache=archives.folder / "fresh"),
        options=lambda: index_options(archives.folder, texts),
    )
    fresh.fetch([wheels["mine"], wheels["other"]])
    (archives.folder / "wheels/mine-1.0-py3-none-any.whl").write_bytes(b"another")
    with pytest.raises(VerificationError, match=r"mine-1\.0"):
        WheelStore(
            replace(archives.settings, cache=archives.folder / "changed"),
            options=lambda: index_options(archives.folder, texts),
        ).fetch([wheels["mine"]])


def test_an_index_that_the_requirements_name_serves_every_machine(archives: Place) -> None:
    """Its wheels, and the variable in its URL instead of a password."""
    team = SimpleIndex(login=("robot", "s3cret"))
    add(team, "mine", "1.0", ("helper",))
    team.add("helper", "helper-1.0.tar.gz", source_archive("helper", "1.0"))
    with serving(team):
        allowed = f"TEAM@{team.url.removeprefix('http://').partition('/')[0]}"
        own = {"TEAM": "s3cret", "IMGTOOL_INDEX_VARIABLES": allowed}
        settings = replace(archives.settings, environ={**archives.settings.environ, **own})
        index = team.url.replace("://", "://robot:${TEAM}@")
        lines = f"--extra-index-url {index}\nmine\n"
        wheels, notes = locked(replace(archives, settings=settings), requirements=lines)
        assert {"mine", "helper"} <= set(wheels)
        assert notes == []
        options = index_options(archives.folder, (("requirements.txt", lines),))
        fresh = replace(settings, cache=archives.folder / "fresh")
        WheelStore(fresh, options=lambda: options).fetch([wheels["mine"]])
    with pytest.raises(FieldError, match="a URL with a password"):
        locked(archives, requirements=f"--index-url {index.replace('${TEAM}', 's3cret')}\n")


def test_a_pyproject_with_extras_and_groups(archives: Place) -> None:
    (archives.folder / "pyproject.toml").write_text(
        "[project]\nname = 'p'\ndependencies = ['top']\n"
        "[project.optional-dependencies]\ntrain = ['scipy']\n[dependency-groups]\nextra = ['hub']\n"
    )
    spec = SPEC + "requirements: pyproject.toml\nextras: [train]\ngroups: [extra]\n"
    events = Events()
    lock = archives.lock(archives.spec(spec), events)
    assert {"top", "dep", "scipy", "hub"} <= {wheel.name for wheel in lock.variants[0].wheels}
    with pytest.raises(FieldError, match=r"image\.yaml:6:1.*no extra gpu"):
        archives.lock(archives.spec(spec.replace("train", "gpu")))


def test_only_archives_of_the_matrix_are_built_by_another_python_than_the_image_s(place: Place) -> None:
    """TensorFlow 2.1 needs Python 3.7 and gast 0.2.2, which has no wheel; here this program's Python alone exists."""
    without = {"PYENV_ROOT": "/nonexistent", "UV_PYTHON_INSTALL_DIR": "/nonexistent", "PATH": "/usr/bin:/bin"}
    place.settings = replace(place.settings, environ={**place.settings.environ, **without})
    add(place.index, "tensorflow-cpu", "2.1.4", ("gast==0.2.2",))
    place.index.add("gast", "gast-0.2.2.tar.gz", source_archive("gast", "0.2.2"))
    place.index.add("dep", "dep-2.0.tar.gz", source_archive("dep", "2.0"))
    spec = SPEC.replace("2.15.1", "2.1.4").replace("3.11", "3.7")
    wheels, _ = locked(place, spec, "")
    assert wheels["gast"].source is not None
    with pytest.raises(InputError, match=r"its build needs Python 3\.7"):
        locked(place, spec, "dep\n")
