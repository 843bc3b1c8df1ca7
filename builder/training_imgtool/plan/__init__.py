"""Decides what to build: files in, keys out. Writes nothing but the lock, and the caches of what it read."""
