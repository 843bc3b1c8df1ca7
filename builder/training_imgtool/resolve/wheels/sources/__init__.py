"""Code that does not come from an index: folders on this machine, commits of Git repositories, and archives."""
