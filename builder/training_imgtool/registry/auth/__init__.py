"""Who may: credentials, their helpers, challenges and tokens."""
