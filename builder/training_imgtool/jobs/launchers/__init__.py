"""Services that start a command and name the machines only then: SkyPilot and Slurm."""
