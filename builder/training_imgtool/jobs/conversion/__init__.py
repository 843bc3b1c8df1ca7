"""An AI Platform Job as a Vertex AI job, or as the spec of images with the same TensorFlow."""
