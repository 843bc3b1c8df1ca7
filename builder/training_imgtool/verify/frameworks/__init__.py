"""Each framework's part of the smoke test: `compute`, which runs inside an image, on Python 3.7 or newer."""
