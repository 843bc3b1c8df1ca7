"""Servers for tests: a registry of our own, a proxy that breaks things, a token server, Artifact Registry's API."""
