"""The build context: the files that go into an image, and their hashes."""
