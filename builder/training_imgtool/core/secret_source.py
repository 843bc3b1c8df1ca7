"""Where a secret of a build comes from. Programs get the place; imgtool writes the value nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

QUOTE = '"'
LARGEST_SECRET = 500_000  # bytes; BuildKit's own limit (`session/secrets`)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """A secret by its place.

    Attributes:
        id: what `RUN --mount=type=secret,id=…` names.
        env: the environment variable with the value, or None.
        file: else the file with it.
    """

    id: str
    env: str | None = None
    file: Path | None = None

    @property
    def place(self) -> str:
        """The place, for messages."""
        return f"the environment variable {self.env}" if self.env else str(self.file)

    @property
    def argument(self) -> str:
        """The value of buildx's `--secret`, a line of CSV."""
        place = f"env={self.env}" if self.env else f"src={self.file}"
        return f"id={self.id}," + (f'"{place.replace(QUOTE, QUOTE * 2)}"' if set(place) & {",", QUOTE} else place)

    def read(self, environ: Mapping[str, str]) -> str | None:
        """The value as text; None when the variable is not set, or there is no such file, or none of a secret's size.

        A pipe is no file: whoever reads it first takes it from all others.
        """
        if self.file is None:
            return environ.get(self.env or "")
        try:
            if not self.file.is_file() or self.file.stat().st_size > LARGEST_SECRET:
                return None
            return self.file.read_bytes().decode(errors="replace")
        except OSError:
            return None
