"""Group A: credentials that are missing, wrong, expired or not readable. Exit 7 with what was tried, never a secret."""

from __future__ import annotations

import pytest

from tests.faults.project import Project
from tests.servers.fault_proxy import FaultProxy


@pytest.mark.registry
def test_a05_a_registry_that_makes_repositories_itself(pushing: Project, proxy: FaultProxy) -> None:
    """--create-repository is for Artifact Registry."""
    pushing.refused("push", "--create-repository", "--json", code=3, says=["Artifact Registry", proxy.host])
    assert {exchange.method for exchange in proxy.log} == {"HEAD"}
