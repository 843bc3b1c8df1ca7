"""The build context: which files an image is made of, and their hashes."""
