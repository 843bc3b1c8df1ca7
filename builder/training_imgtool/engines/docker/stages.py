"""The stages that a Docker Engine was left with, `imgtool/stage:<key>`: what there is, and taking it away."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import EngineUnavailableError
from training_imgtool.engines.docker.engine import STAGES

if TYPE_CHECKING:
    from training_imgtool.engines.docker.client import DockerApi

_GONE, _IN_USE = 404, 409


class _RefusedError(EngineUnavailableError):
    """The engine does not remove the image, for a reason that is no fault."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


def stages(api: DockerApi) -> dict[str, float]:
    """Lists by name when each stage was last built, in seconds since 1970; raises EngineUnavailableError."""
    with api.ask("listing the stages") as client:
        names = [str(name) for image in client.images(STAGES) for name in image.get("RepoTags") or ()]
    images = {name: api.inspect(name) for name in sorted(names)}
    return {name: _built(image) for name, image in images.items() if image}


def remove_stage(api: DockerApi, name: str) -> bool:
    """Takes a stage's name away, and with it what nothing else needs; false when a container runs on it.

    Raises EngineUnavailableError.
    """

    def refused(words: str, status: int | None) -> EngineUnavailableError:
        return _RefusedError(f"removing {name}: {words}", status)

    try:
        with api.ask(f"removing {name}", refused=refused) as client:
            client.remove_image(name)
    except _RefusedError as error:
        if error.status not in {_GONE, _IN_USE}:
            raise
        return error.status == _GONE
    return True


def _built(image: dict[str, Any]) -> float:
    """Returns the later of when it was made and when it got its name; 0 for what the engine does not say."""
    named = (image.get("Metadata") or {}).get("LastTagTime")
    return max(_seconds(image.get("Created")), _seconds(named))


def _seconds(text: object) -> float:
    """Returns a time as the engine writes it (RFC 3339), in seconds since 1970."""
    try:
        return max(0.0, datetime.fromisoformat(str(text)).timestamp())
    except (ValueError, OverflowError):
        return 0.0
