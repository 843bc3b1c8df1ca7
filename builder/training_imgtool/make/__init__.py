"""Makes images from a spec: inputs, content keys, builders, and sinks, which receive the images."""
