"""A request to a builder: to run a stage on an image, or to build the Dockerfile of a whole image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO

from training_imgtool.base.reference import Login
from training_imgtool.base.settings import SecretSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve:
    """A stage to run, or an image to make, whose result the builder pushes.

    Attributes:
        subject: the name in progress events.
        dockerfile: the text of the Dockerfile.
        is_whole: whether that is the Dockerfile of the whole image, as `imgtool render` prints it.
        context: writes a tar of exactly the files that the stage reads.
        name: the tag that the builder pushes, with the registry's name as the builder knows it.
        plain_http: whether the builder pushes over plain HTTP.
        platform: such as linux/amd64.
        secrets: the secrets that the stage mounts.
        hidden: the values of these secrets, which no log shows.
        logins: the logins, by the registry's name as the builder knows it.
        no_cache: whether to run every step again.
        epoch: SOURCE_DATE_EPOCH for the builder; 0 for none.
    """

    subject: str
    dockerfile: str
    context: Callable[[IO[bytes]], None]
    name: str
    plain_http: bool
    platform: str
    is_whole: bool = False
    secrets: tuple[SecretSource, ...] = ()
    hidden: tuple[str, ...] = ()
    logins: Mapping[str, Login]
    no_cache: bool
    epoch: int = 0

    @property
    def host(self) -> str:
        """The registry to which the builder pushes."""
        return self.name.partition("/")[0]
