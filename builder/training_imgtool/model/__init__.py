"""The spec, image.yaml: its types, its reader, its JSON schema."""
