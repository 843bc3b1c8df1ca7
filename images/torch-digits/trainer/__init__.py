"""A trainer for PyTorch."""
