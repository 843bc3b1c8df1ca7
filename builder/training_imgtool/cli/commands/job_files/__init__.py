"""The verbs about job files, which write and submit them."""
