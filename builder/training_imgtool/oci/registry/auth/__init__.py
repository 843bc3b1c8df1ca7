"""Logins: credentials, their helpers, challenges and tokens."""
