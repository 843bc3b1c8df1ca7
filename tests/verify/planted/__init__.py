"""Faults that somebody with the right to push plants in images, by the place where they lie."""
