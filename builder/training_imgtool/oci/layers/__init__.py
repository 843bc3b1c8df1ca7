"""Layers as bytes: tar headers, compression, caching."""
