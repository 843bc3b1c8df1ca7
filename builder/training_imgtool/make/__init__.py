"""From a spec to images: inputs, content keys, builders, sinks."""
