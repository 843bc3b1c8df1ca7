"""The differential campaign at a fixed seed; `scripts/campaign` runs any number of cases."""

from __future__ import annotations

import pytest

from tests.campaign.cases import random_cases
from tests.campaign.rows import ROWS
from tests.campaign.run import campaign, summary

pytestmark = pytest.mark.engine
SEED = 20261121


@pytest.mark.parametrize("cases", [12, pytest.param(300, marks=pytest.mark.long)])
def test_the_direct_builder_makes_what_an_engine_makes_or_says_why_not(cases: int) -> None:
    with campaign() as run:
        verdicts = run([*ROWS, *random_cases(SEED, cases)])
    different = [one for one in verdicts if one.outcome == "DIFFERENT"]
    shown = "\n".join(f"--- {one.case.name}\n{one.case.base}\n{one.case.text}{one.reason}" for one in different)
    assert not different, f"{summary(verdicts)}\n{shown}"
    assert sum(one.outcome == "equal" for one in verdicts) > cases / 4, summary(verdicts)
    assert all(one.reason for one in verdicts if one.outcome != "equal")
    silent = [one.case.name for one in verdicts if one.case.packages and one.outcome != "handed over"]
    assert not silent, "these bases have /opt/venv, or no room for it"
