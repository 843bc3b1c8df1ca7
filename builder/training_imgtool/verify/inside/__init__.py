"""What runs inside an image: a program of modules that need the standard library only."""
