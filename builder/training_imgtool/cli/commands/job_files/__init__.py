"""The verbs that write, convert and submit job files."""
