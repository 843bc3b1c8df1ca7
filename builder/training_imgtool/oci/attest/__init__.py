"""Attestations and signatures: the content of an image, how it was made, and who confirms this."""
