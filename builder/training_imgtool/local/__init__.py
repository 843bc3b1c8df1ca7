"""The built images as the cluster that they will form, in containers on this machine."""
