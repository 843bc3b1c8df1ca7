"""The OCI distribution client, credentials, and Artifact Registry."""
