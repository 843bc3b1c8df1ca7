"""Locks of PyTorch: each role gets its own build, from PyPI or from the index for the build; a wrong one is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from tests.resolve.lock.place import Events, Place, add
from tests.servers.running import running
from tests.servers.simple_index import tiny_wheel
from training_imgtool.base.errors import FieldError, FieldListError, ImgtoolError, TemporaryError
from training_imgtool.base.progress import Note
from training_imgtool.model.frameworks import TORCH
from training_imgtool.model.lock import Lock
from training_imgtool.model.spec import Role
from training_imgtool.resolve.lock.lockfile import dump_lock
from training_imgtool.resolve.lock.parse import parse_lock

SPEC = 'name: m\ntorch: "2.13.0"\nroles: {master: {}, worker: {count: 2}}\n'
L4 = "{gpus: {type: NVIDIA_L4}}"
MIXED = f'name: m\ntorch: "2.13.0"\nroles: {{master: {L4}, worker: {L4}, evaluator: {{}}}}\n'
ON_X86 = 'platform_system == "Linux" and platform_machine == "x86_64"'
CU12 = (f"nvidia-cuda-runtime-cu12==12.8.90; {ON_X86}", f"nvidia-cudnn-cu12==9.10.2; {ON_X86}")
CU13 = ("cuda-toolkit[cudart]==13.0.3", "nvidia-cudnn-cu13==9.20.0.48", "triton==3.7.1")
VISION = {"2.8.0": "0.23.0", "2.10.0": "0.25.0", "2.13.0": "0.28.0", "2.15.0": "0.30.0"}


def name_file(name: str, version: str, machine: str = "x86_64", python: str = "cp311") -> str:
    return f"{name}-{version}-{python}-{python}-manylinux_2_28_{machine}.whl"


@dataclass
class Builds:
    """A server like PyTorch's: a page for each build and package, without hashes; 403 for a missing page."""

    pages: dict[str, dict[str, bytes]] = field(default_factory=dict)  # build/package -> file -> bytes
    asked: Counter[str] = field(default_factory=Counter)
    sent: int = 0

    def add(
        self, build: str, name: str, version: str, *, machine: str = "x86_64", requires: tuple[str, ...] = ()
    ) -> None:
        local = f"{version}+{build}"
        files = self.pages.setdefault(f"{build}/{name}", {})
        files[name_file(name, local, machine)] = tiny_wheel(name, local, requires=requires, padding=300_000)


@contextmanager
def serving_builds(builds: Builds) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            page, _, file = unquote(self.path).removeprefix("/whl/").rpartition("/")
            builds.asked[unquote(self.path)] += 1
            files = builds.pages.get(page)
            body = files.get(file) if files and file else None
            if files is not None and not file:
                anchors = (f'<a href="{quote(file)}">{file}</a><br>\n' for file in files)
                body = f"<!DOCTYPE html>{''.join(anchors)}".encode()
            status = 200 if body is not None else 403
            if body and (asked := self.headers.get("Range")):
                start = int(asked.removeprefix("bytes=").partition("-")[0])
                body, status = body[start:], 206
            self.send_response(status)
            self.send_header("Content-Type", "binary/octet-stream" if file else "text/html")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")
                builds.sent += len(body or b"")

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as host:
        yield f"http://{host}/whl"


@dataclass
class Torch:
    place: Place
    builds: Builds
    events: Events = field(default_factory=Events)

    def lock(self, text: str, requirements: str | None = None) -> Lock:
        return self.place.lock(self.place.spec(text, requirements), self.events)

    def versions(self, text: str, requirements: str | None = None, role: Role = Role.MASTER) -> dict[str, str]:
        """The versions of a role's wheels, after the lock was written and read."""
        lock = self.lock(text, requirements)
        assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock
        return {wheel.name: wheel.version for wheel in lock.variant_of(role).wheels}

    def find_links(self, folder: Path, *wheels: tuple[str, str, tuple[str, ...]]) -> None:
        for name, version, requires in wheels:
            (folder / name_file(name, version)).write_bytes(tiny_wheel(name, version, requires=requires))
        environ = {**self.place.settings.environ, "UV_FIND_LINKS": str(folder)}
        self.place.settings = replace(self.place.settings, environ=environ)


@pytest.fixture
def torch(place: Place) -> Iterator[Torch]:
    """PyPI with its builds of four releases, and an index for each further build."""
    index, builds = place.index, Builds()
    for release, requires in (("2.8.0", CU12), ("2.10.0", CU12), ("2.13.0", CU13), ("2.15.0", CU13)):
        vision = VISION[release]
        for machine in ("x86_64", "aarch64"):
            for python in ("cp311", "cp312"):
                data = tiny_wheel("torch", release, requires=("numpy", *requires))
                index.add("torch", name_file("torch", release, machine, python), data)
                data = tiny_wheel("torchvision", vision, requires=(f"torch=={release}", "numpy"))
                index.add("torchvision", name_file("torchvision", vision, machine, python), data)
            builds.add("cpu", "torch", release, machine=machine, requires=("numpy",))
            builds.add("cpu", "torchvision", vision, machine=machine, requires=(f"torch=={release}", "numpy"))
        builds.add("cu126", "torch", release, requires=("numpy", "nvidia-cuda-runtime-cu12==12.6.77"))
        builds.add(
            "cu128", "torch", release, machine="aarch64", requires=("numpy", "nvidia-cuda-runtime-cu12==12.8.90")
        )
    builds.pages["cpu/numpy"] = {"numpy-2.0.0-cp311-cp311-manylinux_2_28_x86_64.whl": tiny_wheel("numpy", "2.0.0")}
    for name, version in [
        *(("nvidia-cuda-runtime-cu12", version) for version in ("12.6.77", "12.8.90")),
        ("nvidia-cuda-runtime", "13.0.96"),
        ("nvidia-cudnn-cu12", "9.10.2"),
        ("nvidia-cudnn-cu13", "9.20.0.48"),
        ("nvidia-ml-py", "13.580.0"),
        ("triton", "3.7.1"),
        ("jax", "0.10.2"),
    ]:
        add(index, name, version)
    add(index, "cuda-toolkit", "13.0.3", ('nvidia-cuda-runtime==13.0.*; extra == "cudart"',))
    for name, wanted in [
        ("brings-cublas", "nvidia-cudnn-cu12"),
        ("brings-triton", "triton"),
        ("brings-tensorflow", "tensorflow"),
        ("brings-jax", "jax"),
        ("brings-vision", "torchvision"),
        ("wants-old", "torch<2.9"),
    ]:
        add(index, name, "1.0", (wanted,))
    for name in ("flash-attn", "apex", "deepspeed"):
        index.add(name, f"{name.replace('-', '_')}-2.8.3.tar.gz", b"")
    with serving_builds(builds) as url:
        place.settings = replace(place.settings, build_indexes=url)
        yield Torch(place, builds)


RIGHT = [
    (release, platform, cuda, build)
    for release in VISION
    for platform, cuda, build in [
        ("linux/amd64", None, "cpu"),
        ("linux/amd64", "", ""),
        ("linux/amd64", "12.6", "cu126"),
        ("linux/arm64", None, "" if release in {"2.8.0", "2.10.0"} else "cpu"),
        (
            "linux/arm64",
            "12.8" if release in {"2.8.0", "2.10.0"} else "",
            "cu128" if release in {"2.8.0", "2.10.0"} else "",
        ),
    ]
]


@pytest.mark.parametrize(("release", "platform", "cuda", "build"), RIGHT)
def test_each_role_gets_its_build(torch: Torch, release: str, platform: str, cuda: str | None, build: str) -> None:
    text = SPEC.replace("2.13.0", release) + f"platform: {platform}\n"
    text += "" if cuda is None else "accelerator: gpu\n" + (f"cuda: {cuda}\n" if cuda else "")
    versions = torch.versions(text)
    assert versions["torch"] == (f"{release}+{build}" if build else release)
    assert versions["numpy"] == "2.1.0", "the numpy of PyTorch's index"
    assert any(name.startswith("nvidia-") for name in versions) == (cuda is not None)


def test_the_cuda_of_pypis_wheel_needs_no_other_index(torch: Torch) -> None:
    versions = torch.versions(SPEC.replace("2.13.0", "2.8.0") + 'accelerator: gpu\ncuda: "12.8"\n')
    assert (versions["torch"], versions["nvidia-cuda-runtime-cu12"]) == ("2.8.0", "12.8.90")
    assert not torch.builds.asked


def test_one_lock_has_a_build_for_gpus_and_one_for_the_evaluator(torch: Torch) -> None:
    lock = torch.lock(MIXED, "torchvision\nnvidia-ml-py\n")
    gpu, cpu = (lock.variant_of(role) for role in (Role.WORKER, Role.EVALUATOR))
    assert gpu.variant.framework is TORCH
    assert (gpu.variant.build, cpu.variant.build) == ("", "cpu")
    assert (gpu.variant.cuda, gpu.variant.cudnn, cpu.variant.cuda) == ("13.0.96", "9.20.0", None)
    found = [[wheel.version for wheel in row.wheels if wheel.name.startswith("torch")] for row in (gpu, cpu)]
    assert found == [["2.13.0", "0.28.0"], ["2.13.0+cpu", "0.28.0+cpu"]]
    assert (gpu.unused, gpu.needed_libraries) == ((), None)
    assert "http" not in dump_lock(lock)


def test_a_file_without_a_hash_is_downloaded_once_and_said(torch: Torch) -> None:
    file = name_file("torch", "2.13.0+cpu")
    versions = [torch.versions(SPEC) for _ in range(2)]
    assert versions[0] == versions[1]
    notes = [event.text for event in torch.events if isinstance(event, Note)]
    assert f"cpu: {file}: the index states no hash, so imgtool downloaded and hashed the file" in notes
    size = len(torch.builds.pages["cpu/torch"][file])
    assert torch.builds.sent < 2 * size, "one download, and the ends of the file with its metadata"


@pytest.mark.parametrize(
    ("more", "requirements", "expected"),
    [
        ("", "torch==2.13.0+cpu\n", {"torch": "2.13.0+cpu"}),
        ("", "torch>=2\ntorchvision\n", {"torchvision": "0.28.0+cpu"}),
        ("", "torchvision==0.28.0+cpu\n", {"torchvision": "0.28.0+cpu"}),
        ("", "brings-vision\n", {"torchvision": "0.28.0+cpu"}),
        ("accelerator: gpu\n", "torchvision\n", {"torch": "2.13.0", "torchvision": "0.28.0"}),
        ("accelerator: gpu\n", "jax\nbrings-jax\n", {"torch": "2.13.0", "jax": "0.10.2"}),
    ],
)
def test_what_comes_with_it_is_of_the_same_build(
    torch: Torch, more: str, requirements: str, expected: dict[str, str]
) -> None:
    versions = torch.versions(SPEC + more, requirements)
    assert {name: versions[name] for name in expected} == expected


def test_packages_that_no_build_can_differ_in_are_not_looked_for(torch: Torch) -> None:
    plain = tiny_wheel("metrics", "1.0", requires=("torch>=2",))
    torch.place.index.add("metrics", "metrics-1.0-py3-none-any.whl", plain)
    extra = tiny_wheel("tensors", "1.0", requires=('torch>=2; extra == "torch"',))
    torch.place.index.add("tensors", name_file("tensors", "1.0"), extra)
    assert torch.versions(SPEC, "metrics\ntensors\n")["torch"].endswith("+cpu")
    assert [page for page in torch.builds.asked if "metrics" in page or "tensors" in page] == []


def test_other_builds_in_a_folder_are_not_taken(torch: Torch, tmp_path: Path) -> None:
    (folder := tmp_path / "wheels").mkdir()
    torch.find_links(folder, ("torch", "2.13.0+cpu", ()), ("torchvision", "0.28.0+cpu", ("torch==2.13.0",)))
    gpu = torch.versions(SPEC + "accelerator: gpu\n", "torchvision\n")
    assert (gpu["torch"], gpu["torchvision"]) == ("2.13.0", "0.28.0")
    cpu = torch.versions(SPEC, "torchvision\n")
    assert (cpu["torch"], cpu["torchvision"]) == ("2.13.0+cpu", "0.28.0+cpu")
    assert not torch.builds.asked


V100 = SPEC.replace("{master: {}", "{master: {gpus: {type: NVIDIA_TESLA_V100}}").replace("{count: 2}", L4)
B200 = SPEC.replace("{master: {}", "{master: {gpus: {type: NVIDIA_B200}}").replace("{count: 2}", L4)
NAMED = "remove the requirement that brings it"
WRONG = [
    (
        SPEC,
        "nvidia-cudnn-cu12\n",
        "nvidia-cudnn-cu12 9.10.2 is for GPUs, and master, worker computes",
        NAMED,
    ),
    (SPEC, "brings-cublas\n", "nvidia-cudnn-cu12 9.10.2, which brings-cublas requires, is for GPUs", NAMED),
    (MIXED, "brings-triton\n", "triton 3.7.1, which brings-triton requires, is for GPUs, and evaluator", NAMED),
    (SPEC, "torch==2.13.0+cu126\n", "torch==2.13.0+cu126 is not the spec's PyTorch 2.13.0", "leave the line out"),
    (MIXED, "torch==2.13.0+cpu\n", "torch==2.13.0+cpu is not the spec's PyTorch 2.13.0", "leave the line out"),
    (SPEC, "torchvision==0.28.0+cu126\n", "cannot be resolved", "require a version of torchvision"),
    (SPEC, "torchvision==0.23.0\n", "cannot be resolved", "torchvision==0.23.0"),
    (SPEC, "wants-old\n", "cannot be resolved", "torch<2.9"),
    (
        SPEC + "accelerator: gpu\ncuda: 12.6\n",
        "torchvision\n",
        "torchvision 0.28.0 does not fit PyTorch's build cu126",
        "",
    ),
    (
        SPEC + "accelerator: gpu\n",
        "brings-cublas\n",
        "nvidia-cudnn-cu12 9.10.2, which brings-cublas requires, brings CUDA 12",
        "",
    ),
    (SPEC, "brings-tensorflow\n", "brings-tensorflow requires tensorflow 2.15.0, and PyTorch does not need it", "name"),
    (SPEC, "brings-jax\n", "brings-jax requires jax 0.10.2, and PyTorch does not need it", "name jax"),
    (V100, None, "the build of PyTorch for CUDA 13.0 has no code for V100", 'cuda: "12.6"'),
    (B200 + "cuda: 12.6\n", None, "the build of PyTorch for CUDA 12.6 has no code for B200", 'cuda: "12.8"'),
    (
        SPEC.replace("count: 2", "gpus: {type: NVIDIA_L4}"),
        None,
        "the master has no GPU, so master and workers",
        "leave it out",
    ),
    (SPEC + "accelerator: tpu\n", None, "PyPI has no PyTorch for TPUs", "JAX"),
    (
        SPEC,
        "flash-attn\n",
        "flash-attn has no wheel, because it is compiled",
        "install --no-build-isolation flash-attn]",
    ),
    (SPEC, "apex\n", "apex has no wheel, because it is compiled", "run_after_packages"),
    (SPEC, "deepspeed\n", "deepspeed has no wheel, because it is compiled", "run_after_packages"),
    (SPEC + "accelerator: gpu\ncuda: 12.7\n", None, "no index has the wheel torch 2.13.0+cu127", "IMGTOOL_TORCH_INDEX"),
    (
        SPEC.replace("2.13.0", "2.10.0") + "accelerator: gpu\nplatform: linux/arm64\n",
        None,
        "PyPI's wheel of PyTorch 2.10.0 for linux/arm64 computes on the CPU alone",
        'cuda: "12.8" chooses a build',
    ),
    (SPEC + "cuda: 13\n", None, "expected MAJOR.MINOR, such as 12.6 with PyTorch", "leave cuda out"),
    (SPEC.replace("worker: {count: 2}", "ps: {}"), None, "PyTorch has no role ps", "make them workers"),
    (SPEC, "pytorch\n", "pytorch is another PyTorch than the spec's 2.13.0", "leave the line out"),
    (
        SPEC.replace("2.13.0", "2.99.0"),
        None,
        "no index has the wheel torch 2.99.0+cpu for linux/amd64",
        "the index has 2.10.0, 2.13.0, 2.15.0",
    ),
    (SPEC.replace("2.13.0", "1.12.1"), None, "imgtool knows PyTorch from 1.13 on", ""),
    (SPEC + 'python: "3.12"\n', None, "PyTorch 2.13.0 has no wheel for Python 3.12", "3.11"),
    (SPEC.replace("2.13.0", "2.13.0+cpu"), None, "a full release without the name of a build", ""),
]


@pytest.mark.parametrize(("text", "requirements", "message", "hint"), WRONG)
def test_a_wrong_build_is_refused(torch: Torch, text: str, requirements: str | None, message: str, hint: str) -> None:
    with pytest.raises(ImgtoolError) as caught:
        torch.lock(text, requirements)
    error = caught.value
    errors = error.errors if isinstance(error, FieldListError) else (error,)
    assert message in str(error)
    assert hint in " ".join((*(one.hint or "" for one in errors), *error.details))


@pytest.mark.parametrize("build", ["cpu", "cu126"])
@pytest.mark.parametrize(("more", "expected"), [("", "2.13.0+cpu"), ("accelerator: gpu\n", "2.13.0")])
@pytest.mark.parametrize("line", ["--extra-index-url {}/{}", "-f {}/torch_stable.html", "# index of torch {}/{} ; x"])
def test_the_projects_own_index_of_a_build_is_ignored(
    torch: Torch, build: str, more: str, expected: str, line: str
) -> None:
    line = line.format(torch.place.settings.build_indexes, build).partition(" ; x")[0]
    versions = torch.versions(SPEC + more, f"numpy\n{line}\ntorchvision\n")
    assert (versions["torch"], versions["numpy"]) == (expected, "2.1.0")
    assert any("ignores the one in the requirements" in event.text for event in torch.events if isinstance(event, Note))


def test_an_index_that_does_not_answer_can_be_replaced(torch: Torch) -> None:
    torch.place.settings = replace(torch.place.settings, build_indexes="http://127.0.0.1:9/whl")
    with pytest.raises(TemporaryError, match=r"PyTorch 2\.13\.0 for linux/amd64 needs the build cpu") as caught:
        torch.lock(SPEC)
    assert "IMGTOOL_TORCH_INDEX" in str(caught.value.hint)
    torch.versions(SPEC + "accelerator: gpu\n")


def test_a_folder_can_be_the_index(torch: Torch, tmp_path: Path) -> None:
    for page, files in torch.builds.pages.items():
        (folder := tmp_path / "whl" / page).mkdir(parents=True)
        (folder / "index.html").write_text("".join(f'<a href="{quote(file)}">{file}</a>' for file in files))
        for file, data in files.items():
            (folder / file).write_bytes(data)
    torch.place.settings = replace(torch.place.settings, build_indexes=(tmp_path / "whl").as_uri())
    versions = torch.versions(SPEC, "torchvision\n")
    assert (versions["torch"], versions["torchvision"], versions["numpy"]) == ("2.13.0+cpu", "0.28.0+cpu", "2.1.0")
    assert not torch.builds.asked


def test_the_wheel_is_found_again_on_its_index(torch: Torch) -> None:
    lock = torch.lock(SPEC)
    wheel = next(wheel for wheel in lock.variants[0].wheels if wheel.name == "torch")
    from training_imgtool.resolve.wheels.store import WheelStore

    settings = replace(torch.place.settings, cache=torch.place.folder / "other")
    WheelStore(settings).fetch((wheel,))
    assert WheelStore(settings).path(wheel) is not None


def test_an_error_names_the_place(torch: Torch) -> None:
    with pytest.raises(FieldError, match=r"image.yaml:2:8: torch: no index has"):
        torch.lock(SPEC.replace("2.13.0", "2.99.0"))
