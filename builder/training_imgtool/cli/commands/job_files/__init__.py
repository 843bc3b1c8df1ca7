"""The verbs about job files, which write, convert and submit them."""
