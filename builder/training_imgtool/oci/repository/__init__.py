"""What the direct builder reads from a registry and writes to it."""
