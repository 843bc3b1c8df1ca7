"""Connects to the Docker Engine that this machine's settings name."""

from __future__ import annotations

import re

from training_imgtool.base.settings import Settings
from training_imgtool.make.engines.docker.client import reach
from training_imgtool.make.engines.docker.context import find_endpoint
from training_imgtool.make.engines.docker.engine import DockerEngine

_PRODUCT = re.compile(r"Docker/(\d+)\.")  # in the header Server
_FIRST_WITH_ZSTD = 23


def connect(settings: Settings, timeout: float = 2.0) -> DockerEngine:
    """Connects to the engine that DOCKER_HOST, a Docker context or the default names, and waits for its answer.

    Raises EngineUnavailableError when the engine does not answer within `timeout` seconds, or is too old.
    """
    api, server = reach(find_endpoint(settings), timeout)
    product = _PRODUCT.match(server)
    reads_zstd = product is None or int(product[1]) >= _FIRST_WITH_ZSTD
    return DockerEngine(api, reads_zstd=reads_zstd, is_docker=product is not None)
