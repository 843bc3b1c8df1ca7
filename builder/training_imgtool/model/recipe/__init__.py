"""The recipe of an image: its inputs, its key, and a Dockerfile that makes the same image."""
