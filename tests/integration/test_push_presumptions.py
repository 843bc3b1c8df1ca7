"""Images that are most likely new are made while the registry is asked for them: what happens when they are not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, blobs_sent, digests, lines, outcomes
from tests.servers.fault_proxy import Action, Fault, FaultProxy

pytestmark = pytest.mark.registry
ROLES = ["master", "worker", "ps"]


@pytest.fixture
def two(tmp_path: Path, proxy: FaultProxy, project: Project) -> tuple[Machine, Machine]:
    """Two machines that have both pushed the project before, which has changed since."""
    place = f"{proxy.host}/{tmp_path.name.replace('_', '-').lower()}"
    one, other = (Machine(tmp_path / name, place, proxy.host) for name in ("one", "other"))
    one.give(project.wheels)
    one.push(project)
    project.write("trainer/task.py", "print('a change both know')\n")
    one.push(project)
    other.push(project)
    project.write("trainer/task.py", "print('a change that is new to both')\n")
    proxy.clear()
    return one, other


def test_questions_and_uploads_begin_together(
    two: tuple[Machine, Machine], project: Project, proxy: FaultProxy
) -> None:
    """The slowest registry that there is answers a HEAD only when it has seen every upload begin."""
    proxy.add(Fault(action=Action.DELAY, method="HEAD", path="/manifests/", seconds=1.0, times=3))
    one, _ = two
    one.push(project)
    arrived = [exchange.method for exchange in proxy.log]
    assert Counter(arrived) == {"HEAD": 3, "POST": 4, "PUT": 13}, lines(proxy)
    began = {method: min(exchange.began for exchange in proxy.log if exchange.method == method) for method in arrived}
    assert began["POST"] - began["HEAD"] < 0.9
    assert began["PUT"] - began["HEAD"] >= 0.9  # nothing is sent before the answers


def test_what_somebody_made_meanwhile_is_found(
    two: tuple[Machine, Machine], project: Project, proxy: FaultProxy
) -> None:
    one, other = two
    made = other.push(project)
    proxy.clear()
    assert outcomes(one, project) == dict.fromkeys(ROLES, "found")
    assert "PUT" not in proxy.methods(), lines(proxy)
    assert proxy.bytes_up() == 0
    proxy.clear()
    assert one.push(project) == made
    assert proxy.methods() == ["HEAD"] * 3


def test_who_may_only_read_finds_what_somebody_made(
    two: tuple[Machine, Machine], project: Project, proxy: FaultProxy
) -> None:
    one, other = two
    other.push(project)
    proxy.clear()
    proxy.add(Fault(action=Action.ANSWER, method="POST", path="/blobs/uploads/", status=403, times=-1))
    assert outcomes(one, project) == dict.fromkeys(ROLES, "found")


def test_an_upload_that_was_begun_for_nothing_is_ended(
    two: tuple[Machine, Machine], project: Project, proxy: FaultProxy
) -> None:
    """The registry has the image and says of no blob that it has it, as one that knows no mounts."""
    one, other = two
    one_repository = other.push(project)["master"].split("/", 1)[1].split("@")[0]

    def opened(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        place = f"/v2/{one_repository}/blobs/uploads/0123"
        return (202, {"location": place, "content-length": "0"}, b"") if status == 201 else (status, headers, body)

    proxy.clear()
    proxy.add(Fault(action=Action.CHANGE, method="POST", path="/blobs/uploads/", times=-1, change=opened))
    assert outcomes(one, project) == dict.fromkeys(ROLES, "found")
    counted = Counter(proxy.methods())
    assert counted["DELETE"] == counted["POST"] > 0, lines(proxy)
    assert "PUT" not in counted


def test_one_role_is_there_and_the_others_are_not(
    two: tuple[Machine, Machine], project: Project, proxy: FaultProxy
) -> None:
    one, other = two
    worker = other.push(project, "--role", "worker")["worker"]
    proxy.clear()
    images = one.push(project)
    assert images["worker"] == worker
    assert len(set(digests(images).values())) == 3
    sent = blobs_sent(proxy.log)
    assert len(sent) == 2, lines(proxy)  # the configs of the others: the code's layer came with the worker
    assert not [line for line in lines(proxy) if line.startswith("PUT") and "/manifests/worker-" in line]


def test_a_question_that_is_refused_fails_the_run(
    two: tuple[Machine, Machine], project: Project, proxy: FaultProxy
) -> None:
    one, _ = two
    proxy.add(Fault(action=Action.ANSWER, method="HEAD", path="/manifests/worker-", status=403, times=-1))
    _, errors = one.run("build", "--push", "--locked", cwd=project.folder, code=7)
    assert "403" in errors
    assert not [line for line in lines(proxy) if line.startswith("PUT") and "/manifests/" in line]
