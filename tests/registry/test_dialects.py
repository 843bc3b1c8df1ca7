"""Which dialect a host speaks, and what follows from it."""

from __future__ import annotations

import pytest

from training_imgtool.registry.dialects import DIALECTS, STANDARD, find_dialect
from training_imgtool.registry.session import find_origin


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("docker.io", "docker-hub"),
        ("us-docker.pkg.dev", "google"),
        ("europe-west1-docker.pkg.dev", "google"),
        ("gcr.io", "google"),
        ("eu.gcr.io", "google"),
        ("evilgcr.io", "standard"),
        ("us-docker.pkg.dev.evil.com", "standard"),
        ("gcr.io:443", "standard"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "ecr"),
        ("public.ecr.aws", "ecr-public"),
        ("ghcr.io", "github"),
        ("ghcr.io.example.com", "standard"),
        ("team.azurecr.io", "azure"),
        ("azurecr.io", "standard"),
        ("127.0.0.1:5000", "standard"),
    ],
)
def test_who_speaks_what(host: str, name: str) -> None:
    assert find_dialect(host).name == name


def test_docker_hub_answers_elsewhere() -> None:
    assert find_origin("docker.io", find_dialect("docker.io"), ()).url == "https://registry-1.docker.io:443"
    assert find_origin("ghcr.io", find_dialect("ghcr.io"), ()).url == "https://ghcr.io:443"


@pytest.mark.parametrize("dialect", [STANDARD, *DIALECTS], ids=lambda dialect: dialect.name)
def test_each_hint_names_a_host_at_most(dialect: object) -> None:
    for hint in ("login_hint", "denied_hint", "missing_hint"):
        text = getattr(dialect, hint).format(host="team.example")
        assert "{" not in text
        assert text.count("`") % 2 == 0
