"""What imgtool reads in the code of the spec's owner before it builds: mistakes, and the libraries that it names."""
