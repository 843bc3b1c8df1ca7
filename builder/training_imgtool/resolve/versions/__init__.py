"""Which TensorFlow, Python, CUDA, cuDNN and base go together, and the choice for a spec."""
