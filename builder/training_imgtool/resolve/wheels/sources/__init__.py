"""Code from other places than an index: folders on this machine, commits of Git repositories, and archives."""
