"""`imgtool init`: what a project says of itself, and the spec and trainer that it gets."""
