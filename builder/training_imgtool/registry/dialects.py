"""What registries do differently."""

from __future__ import annotations

from training_imgtool.core.reference import DOCKER_HUB


def api_host(registry: str) -> str:
    """Where a registry's API answers; Docker Hub's is not at its name."""
    return "registry-1.docker.io" if registry == DOCKER_HUB else registry


def is_google(host: str) -> bool:
    """Whether a registry host is Google's: Artifact Registry or gcr.io."""
    return host.endswith(("-docker.pkg.dev", ".gcr.io")) or host == "gcr.io"
