"""Images without a daemon: layers and OCI manifests made directly from a recipe."""
