"""Debian packages as layers: what apt would install, laid out as dpkg would, without running a script."""
