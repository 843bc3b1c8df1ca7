"""The package index: its pages, files and logins, and the settings of pip and uv for it."""
