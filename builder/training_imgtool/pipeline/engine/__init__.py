"""Stages that an engine or a builder of buildx runs, and the secrets that their steps mount."""
