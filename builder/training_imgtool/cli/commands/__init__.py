"""The work of the verbs that need more than one call, without parsing arguments or printing."""
