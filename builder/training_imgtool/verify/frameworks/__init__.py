"""The part of the smoke test that each framework has: `compute`, which runs inside an image, in Python 3.7."""
