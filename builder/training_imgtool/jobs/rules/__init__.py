"""The rules that job files of others must keep, and the shapes of their documents."""
