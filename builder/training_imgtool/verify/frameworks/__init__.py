"""Each framework's own part of the smoke test: `compute`, which runs inside an image, from Python 3.7 on."""
