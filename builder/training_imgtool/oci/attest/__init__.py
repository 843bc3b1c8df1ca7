"""Makes attestations, which tell what an image contains and how it was made, and makes and checks signatures."""
