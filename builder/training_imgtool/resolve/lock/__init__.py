"""Reads, writes and renews the lock, the result of resolving a spec."""
