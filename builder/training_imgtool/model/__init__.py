"""The spec, which is the file image.yaml: its types, its reader and its JSON schema."""
