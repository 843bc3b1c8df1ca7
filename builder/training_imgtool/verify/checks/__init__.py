"""One module per group of checks of `imgtool verify`."""
