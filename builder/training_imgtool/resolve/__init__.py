"""What goes into images, by version and hash: the version matrix, wheels, the lock."""
