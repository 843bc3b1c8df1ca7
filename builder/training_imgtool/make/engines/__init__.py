"""Engines: the Docker Engine, which stores images and runs containers (`docker/`), and buildx for RUN instructions."""
