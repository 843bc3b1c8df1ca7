"""The verbs about job files: write one, check one, submit one."""
