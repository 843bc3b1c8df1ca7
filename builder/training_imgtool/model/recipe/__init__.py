"""The recipe of an image: what it is made from, its key, and the Dockerfile that makes the same."""
