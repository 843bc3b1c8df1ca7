"""`imgtool verify`: compares an image with its plan, from inside a container or through the registry."""
