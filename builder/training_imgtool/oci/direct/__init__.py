"""Images without a daemon: layers, wheels and OCI manifests made directly from a rendered Dockerfile."""
