"""How a machine is shared out."""

from __future__ import annotations

import pytest

from training_imgtool.jobs.model import quantity
from training_imgtool.local.limits import Request, Share, divide_resources, machine_size, request_of
from training_imgtool.model.spec import Gpus, RoleSpec

GIB = 1 << 30


@pytest.mark.parametrize(
    ("machine", "cpus", "gib"),
    [
        ("n1-standard-4", 4.0, 15.0),
        ("n1-highmem-2", 2.0, 13.0),
        ("n1-highcpu-16", 16.0, 14.4),
        ("e2-standard-8", 8.0, 32.0),
        ("n2d-highmem-4", 4.0, 32.0),
        ("c2-standard-60", 60.0, 240.0),
    ],
)
def test_machine_types_say_their_size(machine: str, cpus: float, gib: float) -> None:
    found = machine_size(machine)
    assert found[0] == cpus
    assert found[1] == pytest.approx(gib * GIB)


@pytest.mark.parametrize(
    "machine", [None, "", "large_model", "cloud_tpu", "n1-standard-", "a2-highgpu-1g", "n1-standard-4 "]
)
def test_machine_types_that_do_not(machine: str | None) -> None:
    assert machine_size(machine) == (None, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", 0.5),
        ("4", 4),
        ("1.5", 1.5),
        ("16Gi", 16 * GIB),
        ("512Mi", 1 << 29),
        ("2G", 2e9),
        ("8k", 8000),
        ("8Ki", 8192),
    ],
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", [None, "", "4 CPUs", "-1", "Gi", "1e3"])
def test_what_is_no_quantity(text: str | None) -> None:
    assert quantity(text) is None


def test_a_roles_own_numbers_win_over_its_machine() -> None:
    role = RoleSpec(machine="n1-standard-4", cpus="500m", memory="1Gi", gpus=Gpus(type="NVIDIA_TESLA_T4", count=2))
    assert request_of(role) == Request(cpus=0.5, memory=GIB, gpus=2)
    assert request_of(RoleSpec()) == Request()


def test_what_fits_is_given_as_asked() -> None:
    asked = {"master": Request(cpus=1, memory=GIB), "worker-0": Request(cpus=8, memory=2 * GIB)}
    given, notes = divide_resources(asked, cpus=4, memory=8 * GIB, gpus=())
    assert given == {
        "master": Share(cpus=1, memory=GIB, gpus=()),
        "worker-0": Share(cpus=None, memory=2 * GIB, gpus=()),  # more than there are: all of them
    }
    assert notes == ()


def test_memory_beyond_the_machine_is_cut_in_proportion() -> None:
    asked = {"master": Request(memory=30 * GIB), "ps-0": Request(memory=10 * GIB)}
    given, notes = divide_resources(asked, cpus=2, memory=10 * GIB, gpus=())
    sizes = [share.memory or 0 for share in given.values()]
    assert sum(sizes) <= 0.85 * 10 * GIB
    assert sizes[0] / sizes[1] == pytest.approx(3, rel=0.01)
    assert "6.4 GiB for master (30.0 asked)" in notes[0]


def test_who_asks_for_nothing_gets_an_even_share() -> None:
    given, notes = divide_resources({name: Request() for name in "abcd"}, cpus=2, memory=8 * GIB, gpus=())
    assert {share.memory for share in given.values()} == {int(8 * GIB * 0.85 / 4)}
    assert notes == ()


def test_an_engine_that_cannot_limit_memory() -> None:
    given, _ = divide_resources({"master": Request(memory=GIB)}, cpus=2, memory=0, gpus=())
    assert given["master"].memory is None


def test_gpus_are_dealt_out_in_turn() -> None:
    asked = {"master": Request(gpus=1), "worker-0": Request(gpus=2), "worker-1": Request(gpus=1), "ps-0": Request()}
    given, notes = divide_resources(asked, cpus=8, memory=64 * GIB, gpus=["0", "1", "2", "3"])
    assert {name: one.gpus for name, one in given.items()} == {
        "master": ("0",), "worker-0": ("1", "2"), "worker-1": ("3",), "ps-0": (),
    }  # fmt: skip
    assert notes == ()
    given, notes = divide_resources(asked, cpus=8, memory=64 * GIB, gpus=["0"])
    assert given["worker-0"].gpus == ("0",)
    assert "they share 1" in notes[0]


def test_without_gpus_replicas_run_on_the_cpu() -> None:
    given, notes = divide_resources({"master": Request(gpus=2)}, cpus=8, memory=64 * GIB, gpus=())
    assert given["master"].gpus == ()
    assert notes == ("the replicas ask for 2 GPUs and this machine has 0: they run on the CPU",)
    unknown, notes = divide_resources({"master": Request(gpus=2)}, cpus=8, memory=64 * GIB, gpus=None)
    assert unknown["master"].gpus == 2
    assert notes == ()
