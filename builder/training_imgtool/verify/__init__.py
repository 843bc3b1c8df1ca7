"""`imgtool verify`: compares the images in a registry with the lock, the base image and the code."""
