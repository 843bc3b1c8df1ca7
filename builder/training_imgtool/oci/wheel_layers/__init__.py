"""A set of wheels as the files and layers of an installed environment."""
