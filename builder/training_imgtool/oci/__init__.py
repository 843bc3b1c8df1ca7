"""Makes images without a daemon: reads and writes registries, makes layers and manifests, and attaches documents."""
