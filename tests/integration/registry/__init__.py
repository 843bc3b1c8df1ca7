"""The registry client against a real docker-registry."""
