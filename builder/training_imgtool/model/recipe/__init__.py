"""The recipe of an image: the image's inputs, its key, and a Dockerfile from which Docker makes the same image."""
