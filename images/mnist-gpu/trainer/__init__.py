"""A trainer for handwritten digits that runs alone, or as a master, workers and parameter servers."""
