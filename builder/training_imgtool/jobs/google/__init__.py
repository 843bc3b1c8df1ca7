"""AI Platform Training and Vertex AI."""
