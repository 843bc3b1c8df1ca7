"""The command line: one verb per module. Each parses its arguments, calls a function below and prints the result."""
