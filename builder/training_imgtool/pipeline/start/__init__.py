"""What direct images are appended to: the base, or a stage that the registry has or an engine makes."""
