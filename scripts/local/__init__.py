"""The services that tests and the demo run against, on this machine: an engine, a registry, stand-in base images."""
