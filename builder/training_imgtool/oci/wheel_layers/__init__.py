"""Makes the files and layers of an installed environment from wheels."""
