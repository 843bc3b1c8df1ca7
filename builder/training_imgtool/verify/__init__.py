"""`imgtool verify`: what was pinned is what is inside, seen in a container or read from the registry."""
