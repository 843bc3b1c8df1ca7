"""The version of imgtool; pyproject.toml reads it from this file."""

__version__ = "0.1.0"
SCHEMA = 1  # of the JSON documents; raise it with a change that would break their readers
