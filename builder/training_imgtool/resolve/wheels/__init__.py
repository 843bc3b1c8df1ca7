"""Wheels: resolving, the package index, the store on disk."""
