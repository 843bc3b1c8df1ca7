"""Which level runs a case of a long campaign: `make long` the sample, `make campaign` the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def campaign(values: Iterable[str], sample: Collection[str], quick: Collection[str] = ()) -> list[Any]:
    """Makes parameters of names: those of `quick` are for every run, those of `sample` are long, all others campaigns.

    Raises ValueError for a name of these lists that no case has.
    """
    names = list(values)
    if unknown := {*sample, *quick} - {*names}:
        raise ValueError(f"no such cases: {sorted(unknown)}")
    marks = dict.fromkeys(sample, (pytest.mark.long,)) | dict.fromkeys(quick, ())
    return [pytest.param(name, marks=marks.get(name, (pytest.mark.campaign,))) for name in names]
