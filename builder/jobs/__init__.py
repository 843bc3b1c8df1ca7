"""Job files: one module per target, each a pure function from a spec and digests to plain data."""
