"""`imgtool mirror --wheels`: Debian packages in a folder, which serve a machine that no archive serves."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests import plans
from tests.debian.packages import make_package, needs_dpkg
from tests.debian.test_archive import base, offer
from tests.debian.test_layer import archive, maker, settings, store
from training_imgtool.commands.mirror import MirroredFiles, mirror_debian, mirror_files
from training_imgtool.core.errors import LocalFileError, PackageGoneError, UsageError, VerificationError
from training_imgtool.core.progress import Event, Note, silent
from training_imgtool.core.settings import Settings, from_environment
from training_imgtool.debian.apt import resolve_packages
from training_imgtool.debian.store import PackageStore, name_copy
from training_imgtool.direct.debian_layer import OpenedLibraries
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.pipeline.run_wheels import read_linked_packages
from training_imgtool.plan import DebianPackage, Lock, LockedDebian
from training_imgtool.spec.load import SpecFile, load

__all__ = ["archive"]  # a fixture
pytestmark = needs_dpkg
DEAD = "http://127.0.0.1:9"
SPEC = """\
name: demo
tensorflow: "2.15.1"
trainer: {source: trainer, module: trainer.task}
roles: {master: {machine: n1-standard-4}}
job: {region: us-central1}
"""


def lock(*packages: DebianPackage, engine: str = "") -> Lock:
    debian = LockedDebian(requested=("first",), packages=packages, engine=engine)
    return Lock(inputs="", platform="linux/amd64", variants=(replace(plans.locked(), debian=debian),))


@pytest.fixture
def spec_file(tmp_path: Path) -> SpecFile:
    path = tmp_path / "project/image.yaml"
    (path.parent / "trainer").mkdir(parents=True)
    (path.parent / "trainer/task.py").write_text("")
    path.write_text(SPEC)
    return load(path)


class Notes:
    """Collects the notes of a run."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Note):
            self.texts.append(event.text)


def mirrored(tmp_path: Path, url: str, *packages: DebianPackage) -> Path:
    """A folder that has the packages, copied on a machine that the archive serves."""
    folder = tmp_path / "own files"
    folder.mkdir(exist_ok=True)
    copied = mirror_debian(lock(*packages), folder, lambda _: store(tmp_path / "first", url), silent)
    assert copied == tuple(map(name_copy, packages))
    assert sorted(path.name for path in folder.iterdir()) == sorted(copied)
    return folder


def machine(cache: Path, find_links: Path | str) -> Settings:
    environ = {"PATH": os.environ["PATH"], "IMGTOOL_CACHE": str(cache), "UV_FIND_LINKS": str(find_links)}
    return from_environment({**environ, "UV_DEFAULT_INDEX": DEAD})


@pytest.mark.parametrize("served", [False, True], ids=["folder", "page"])
def test_a_mirrored_package_makes_the_same_layer_when_the_archive_has_dropped_it(
    tmp_path: Path, archive: tuple[str, Path], spec_file: SpecFile, *, served: bool
) -> None:
    url, folder = archive
    offer(tmp_path, folder, "1.0+b-1")
    locked = resolve_packages(base(url), ("first",), "amd64", settings(tmp_path / "apt")).packages
    made = maker(tmp_path / "first", locked, url).layer("RUN", OpenedLibraries())
    own = mirrored(tmp_path, url, *locked)
    offer(tmp_path, folder, "1.0+b-2")
    with pytest.raises(PackageGoneError) as caught:
        store(tmp_path / "alone", url).fetch(locked)
    assert f"{url}/first_1.0%2Bb-1_amd64.deb" in caught.value.details[0]
    assert "UV_FIND_LINKS" in str(caught.value.hint)
    if served:
        own.rename(folder / "own files")
    there = machine(tmp_path / "second", f"{url}/own%20files/" if served else own)
    notes = Notes()
    read_copy = read_linked_packages(spec_file, there, notes)
    cache = LayerCache(tmp_path / "second")
    store_there = PackageStore(cache, there, lambda: (DEAD,), silent, read_copy=read_copy, pause=lambda _: None)
    second = replace(maker(tmp_path / "second", locked), store=store_there)
    assert second.layer("RUN", OpenedLibraries()).descriptor == made.descriptor
    assert not notes.texts


def test_the_file_of_an_archive_serves_too_and_one_with_another_hash_does_not(
    tmp_path: Path, archive: tuple[str, Path], spec_file: SpecFile
) -> None:
    _, folder = archive
    package = offer(tmp_path, folder, "1.0-1")
    read = read_linked_packages(spec_file, machine(tmp_path / "cache", folder), silent)
    assert read(package) == (folder / package.file).read_bytes()
    assert read(replace(package, sha256="0" * 64)) is None
    notes = Notes()
    page = machine(tmp_path / "cache", "ftp://127.0.0.1/wheels")
    assert read_linked_packages(spec_file, page, notes)(package) is None
    assert "imgtool looks for Debian packages in the archives only" in "".join(notes.texts)


def test_packages_of_one_name_lie_side_by_side(tmp_path: Path, archive: tuple[str, Path]) -> None:
    url, folder = archive
    packages = []
    for content in "xy":
        (tmp_path / content).mkdir()
        package, path = make_package(tmp_path / content, "first", {"/usr/bin/tool": content})
        (folder / content).mkdir()
        path.rename(folder / content / path.name)
        packages.append(replace(package, file=f"{content}/{path.name}"))
    assert len(list(mirrored(tmp_path, url, *packages).iterdir())) == 2


def test_a_file_that_is_there_stays(tmp_path: Path, archive: tuple[str, Path]) -> None:
    url, folder = archive
    package = offer(tmp_path, folder, "1.0-1")
    own = mirrored(tmp_path, url, package)
    assert mirror_debian(lock(package), own, lambda _: store(tmp_path / "other", DEAD), silent)
    copy = own / name_copy(package)
    copy.write_bytes(b"somebody else's")
    with pytest.raises(UsageError, match="another file than the lock's"):
        mirror_debian(lock(package), own, lambda _: store(tmp_path / "first", url), silent)
    assert copy.read_bytes() == b"somebody else's"


def test_a_damaged_file_of_the_cache_is_not_copied(tmp_path: Path, archive: tuple[str, Path]) -> None:
    url, folder = archive
    package = offer(tmp_path, folder, "1.0-1")
    here = store(tmp_path / "first", url)
    here.path(package).write_bytes(bytes(package.size))
    own = tmp_path / "own"
    own.mkdir()
    with pytest.raises(VerificationError, match="damaged, removed"):
        mirror_debian(lock(package), own, lambda _: here, silent)
    assert not list(own.iterdir())
    assert mirror_debian(lock(package), own, lambda _: here, silent) == (name_copy(package),)


def test_what_an_engine_installs_is_named(tmp_path: Path) -> None:
    notes = Notes()
    assert mirror_debian(lock(engine="ffmpeg: a script"), tmp_path, lambda _: store(tmp_path), notes) == ()
    assert notes.texts == [
        "cpu: an engine installs the Debian packages, so the lock has none to copy: ffmpeg: a script"
    ]


def test_a_file_in_place_of_the_folder(tmp_path: Path, spec_file: SpecFile) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalFileError, match="file"):
        mirror_files(spec_file, lock(), tmp_path / "file", settings(tmp_path), silent)


def test_names_of_several_platforms_count_once() -> None:
    assert MirroredFiles(("a",), ("b",)) + MirroredFiles(("a", "c"), ("b",)) == MirroredFiles(("a", "c"), ("b",))
