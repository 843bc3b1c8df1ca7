"""The verbs that are more than one call: what each does, without parsing arguments or printing."""
