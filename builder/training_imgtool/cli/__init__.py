"""The command line. Each verb's module parses arguments, calls a function of another group and prints the result."""
