"""What every other room uses: errors, settings, progress, references, files, signals."""
