"""Makes attestations, which tell what an image contains and how it was made. Makes and checks signatures."""
