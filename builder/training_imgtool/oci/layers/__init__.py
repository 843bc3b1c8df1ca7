"""Makes and reads the bytes of layers: writes tar archives, compresses them, and caches them."""
