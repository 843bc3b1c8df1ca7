"""What every other group uses: errors, settings, progress, references, files, signals."""
