"""BuildKit through buildx: builders of every driver, on this machine or on another."""
