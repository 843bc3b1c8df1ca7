"""Reads what a project says about its images, without running it, and proposes a spec."""
