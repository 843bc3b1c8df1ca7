"""Uses BuildKit through buildx, with builders of every driver, on this machine or on another machine."""
