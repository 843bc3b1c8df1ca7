"""File formats of a Debian system, without effects: packages, control data, libraries, certificates."""
