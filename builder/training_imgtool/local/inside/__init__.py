"""Programs that `imgtool run --watch` sends into containers."""
