"""Chooses the content of images by version and hash: the version matrix, wheels, the lock."""
