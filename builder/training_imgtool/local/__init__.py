"""Runs the built images as a cluster of containers on this machine."""
