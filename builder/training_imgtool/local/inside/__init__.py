"""Programs that `imgtool run` starts in containers."""
