"""The client for OCI registries, credentials, and Artifact Registry."""
