"""Dockerfiles: rendered from templates, parsed, checked and evaluated."""
