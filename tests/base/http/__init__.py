"""The registry client, piece by piece."""
