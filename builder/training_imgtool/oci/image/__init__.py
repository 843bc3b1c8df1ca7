"""Image manifests and configs, and formats of exported images: OCI layout, docker archive."""
