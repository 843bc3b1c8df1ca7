"""The command line: one verb per file; each parses, calls a pipeline function and prints."""

import gc

gc.set_threshold(20_000)  # start-up makes many objects that stay; looking through them again and again takes 12 ms
