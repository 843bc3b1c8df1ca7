"""Reads and writes images, stages and wheels in a registry, for the direct builder."""
