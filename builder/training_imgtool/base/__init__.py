"""Contains what all other groups of modules use: errors, settings, progress, references, files, signals."""
