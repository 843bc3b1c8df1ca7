"""The verbs about job files: write one, convert an older one, submit one."""
