"""What a supervisor does when the engine refuses it a network."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.jobs.specs import images
from training_imgtool.base.errors import EngineUnavailableError
from training_imgtool.base.progress import silent
from training_imgtool.local.owner import Owner
from training_imgtool.local.ready import Ready
from training_imgtool.local.replicas import Service, make_cluster
from training_imgtool.local.supervisor import Supervisor
from training_imgtool.make.engines.docker.containers import RefusedError
from training_imgtool.model.spec import ImageSpec, Role, RoleSpec

SPEC = ImageSpec(name="mnist", tensorflow="2.15.1", roles={Role.MASTER: RoleSpec()})


def test_an_engine_without_a_free_subnet_is_the_engines_failure() -> None:
    words = "could not find an available, non-overlapping IPv4 address pool"

    def refuse(name: str, labels: dict[str, str]) -> None:
        raise RefusedError(f"{name}: the Docker Engine says: {words}", status=500)

    engine: Any = SimpleNamespace(
        create_network=refuse, containers_with=lambda label: (), networks_with=lambda label: ()
    )
    ready = Ready(
        run="ab12",
        spec=SPEC,
        cluster=make_cluster(SPEC, images(SPEC), Service.LOCAL),
        images={},
        shares={},
        user="",
        job_dir=Path("/nonexistent"),
        kills=(),
        restart=False,
        checkpoint=None,
        owner=Owner(host="h", boot="b", pid=1, started="1"),
        notes=(),
    )
    with pytest.raises(EngineUnavailableError, match="non-overlapping") as caught:
        Supervisor(ready, engine, silent).run()
    assert caught.value.exit_code == 5
    assert "docker network prune" in (caught.value.hint or "")
