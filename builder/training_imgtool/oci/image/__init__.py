"""Makes image manifests and configs, and exports images as an OCI layout or a docker archive."""
