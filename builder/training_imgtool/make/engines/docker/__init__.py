"""The Docker Engine, through docker-py."""
