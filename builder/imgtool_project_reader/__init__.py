"""Reads the files of a Python project, and proposes a spec for training it (see README.md)."""

from imgtool_project_reader.knowledge import Fault, Knowledge, Release, Variant
from imgtool_project_reader.packages import Concessions
from imgtool_project_reader.proposal import Proposal, propose

__all__ = ["Concessions", "Fault", "Knowledge", "Proposal", "Release", "Variant", "propose"]
