"""What verbs do between parsing their arguments and printing the result, if that is more than one call."""
