"""Images without a daemon: registries, layers, manifests, and documents attached to images."""
