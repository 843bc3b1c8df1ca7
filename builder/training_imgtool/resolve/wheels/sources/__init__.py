"""Code that is no release on an index: folders of this machine and commits of Git repositories, as archives."""
