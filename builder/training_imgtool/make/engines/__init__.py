"""Engines: Docker's, which has images and runs containers (`docker/`), and what runs RUN instructions (`buildx/`)."""
