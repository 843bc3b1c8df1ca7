"""Defines which TensorFlow, Python, CUDA, cuDNN and base fit together, and chooses them for a spec."""
