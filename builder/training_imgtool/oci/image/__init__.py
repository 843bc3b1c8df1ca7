"""Image manifests and configs, and the forms in which an image leaves: OCI layout, docker archive."""
