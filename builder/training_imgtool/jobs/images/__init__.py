"""What lint says of the images that a job file names."""
