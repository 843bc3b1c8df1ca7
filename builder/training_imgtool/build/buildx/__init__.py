"""Stages that buildx runs: what a builder gets, and the secrets that its steps mount."""
