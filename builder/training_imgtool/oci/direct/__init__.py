"""Makes the layers and the manifest of an image directly from a recipe, without a daemon."""
