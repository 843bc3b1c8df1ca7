"""Reads from a registry and writes to it for the direct builder."""
