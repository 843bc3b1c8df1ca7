"""What a builder is to run: a stage on an image, or the Dockerfile of a whole image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO

from training_imgtool.base.reference import Login
from training_imgtool.base.settings import SecretSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve:
    """A stage to run, or an image to make, and to push.

    Attributes:
        subject: what progress calls it.
        dockerfile: the text.
        is_whole: whether it is the Dockerfile of the whole image, as `imgtool render` prints it.
        context: writes a tar of exactly what the stage reads.
        name: the tag that the builder pushes, by the registry's name at the builder.
        plain_http: whether the builder pushes over plain HTTP.
        platform: such as linux/amd64.
        secrets: those that the stage mounts.
        hidden: their values, which no log shows.
        logins: by the registry's name at the builder.
        no_cache: run every step again.
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

    @property
    def host(self) -> str:
        """The registry that it is pushed to."""
        return self.name.partition("/")[0]
