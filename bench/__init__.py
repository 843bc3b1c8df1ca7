"""Side-by-side measurements of imgtool and other builders: `python -m bench`, or `make bench`."""
