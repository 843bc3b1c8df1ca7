"""Golden files with one fault each, of every target."""

from __future__ import annotations

from tests.jobs.faults_ai_platform import AI_PLATFORM
from tests.jobs.faults_others import OTHERS
from tests.jobs.faults_vertex import VERTEX

FAULTS = (*AI_PLATFORM, *VERTEX, *OTHERS)
