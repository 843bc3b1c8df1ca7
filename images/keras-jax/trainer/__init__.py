"""A trainer for Keras 3 on JAX."""
