"""The command line: one verb per file; each parses, calls a pipeline function and prints."""
