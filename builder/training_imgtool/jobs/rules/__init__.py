"""The rules that `lint` applies to job files, and the shapes (keys and kinds of values) of their documents."""
