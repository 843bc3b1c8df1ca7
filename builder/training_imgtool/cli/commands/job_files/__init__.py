"""The verbs that write and submit job files."""
