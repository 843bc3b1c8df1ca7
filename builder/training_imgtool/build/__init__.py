"""From a spec to images: inputs, content keys, what is found, what is made, and by whom."""
