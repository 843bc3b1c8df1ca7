"""Logs in to registries: finds logins, runs credential helpers, answers challenges, and keeps tokens."""
