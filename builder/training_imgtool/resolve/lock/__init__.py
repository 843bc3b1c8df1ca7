"""The lock: what a spec resolved to, read, written, renewed."""
