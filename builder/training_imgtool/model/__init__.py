"""The spec, image.yaml: its types, how it is read, its JSON schema."""
