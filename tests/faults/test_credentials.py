"""Group A: credentials that are missing, wrong, expired or not readable. Exit 7 with what was tried, never a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.project import CANARY, Project
from tests.servers.fault_proxy import FaultProxy


def docker_config(project: Project, content: object) -> Path:
    """Docker's config.json with this content, JSON or text."""
    path = project.home / ".docker/config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def helper(project: Project, host: str, script: str) -> None:
    """A credential helper for `host` that is this shell script."""
    folder = project.home / "bin"
    folder.mkdir()
    program = folder / "docker-credential-test"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    project.env["PATH"] = f"{folder}:{project.env['PATH']}"
    docker_config(project, {"credHelpers": {host: "test", "other.example.com": "not-for-us"}, "auths": {}})


@pytest.mark.registry
def test_a05_a_registry_that_makes_repositories_itself(pushing: Project, proxy: FaultProxy) -> None:
    """--create-repository is for Artifact Registry."""
    pushing.refused("push", "--create-repository", "--json", code=3, says=["Artifact Registry", proxy.host])
    assert {exchange.method for exchange in proxy.log} == {"HEAD"}


@pytest.mark.registry
def test_a06_helper_whose_login_is_used(pushing: Project, proxy: FaultProxy) -> None:
    """Only the helper of this registry runs, and its password goes nowhere but to the registry."""
    helper(pushing, proxy.host, f"""read host; echo '{{"Username": "robot", "Secret": "{CANARY}"}}'""")
    assert pushing.run("push").code == 0
    assert {exchange.headers.get("authorization", "")[:6] for exchange in proxy.log} == {"Basic "}
    (pushing.home / "bin/docker-credential-test").unlink()
    assert pushing.leaks() == []
