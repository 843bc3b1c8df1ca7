"""Converts an AI Platform Job to a spec, from which `jobs.targets.vertex` makes a job for Vertex AI."""
