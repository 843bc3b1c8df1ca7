"""Attestations and signatures: what is in an image, how it was made, and who says so."""
