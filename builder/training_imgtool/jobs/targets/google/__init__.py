"""What the targets of Google share: the flags of gcloud, and the package of a trainer without images."""
