"""Contains the client for OCI registries, the search for credentials, and the adapter for Artifact Registry."""
