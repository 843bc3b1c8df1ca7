"""YAML with the line and column of each value."""
