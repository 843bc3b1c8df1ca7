"""HTTP to registries, package indexes and archives: connections, retries, errors."""
