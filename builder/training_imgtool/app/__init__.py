"""The work of each verb that makes more than one call between parsing its arguments and printing its result."""
