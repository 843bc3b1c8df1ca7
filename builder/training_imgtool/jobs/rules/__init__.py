"""The rules for job files that other people wrote, and the shapes of their documents."""
