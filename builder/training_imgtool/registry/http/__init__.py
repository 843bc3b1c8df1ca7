"""HTTP to a registry: connections, retries, errors."""
