"""What tests of locks share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.resolve.lock.place import Place, make_place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder with a spec, and an index on loopback."""
    with make_place(tmp_path) as made:
        yield made
