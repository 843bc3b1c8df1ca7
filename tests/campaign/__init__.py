"""The differential campaign: made-up bases and Dockerfiles, built directly and by an Engine, and compared."""
