"""Golden files with one fault each, of every target that lint judges."""

from __future__ import annotations

from tests.jobs.faults_others import OTHERS
from tests.jobs.faults_vertex import VERTEX

FAULTS = (*VERTEX, *OTHERS)
