"""Resolves, finds, downloads, stores and builds wheels."""
