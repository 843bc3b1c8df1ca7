"""imgtool: one spec becomes TensorFlow training images, one per role, and the job file that runs them."""

__version__ = "0.1.0"
