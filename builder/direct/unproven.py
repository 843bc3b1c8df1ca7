"""What the direct builder says when it cannot prove that it would make the same files as an engine."""

from __future__ import annotations

from builder.errors import EngineUnavailableError


class UnprovenError(EngineUnavailableError):
    """This stage is for an engine; the message says why. Without an engine it is the user's error message."""
