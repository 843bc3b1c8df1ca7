"""Images without a daemon: registries, layers, manifests, and what is attached to images."""
