"""Layers as bytes: tar headers, compression, splicing, caching."""
