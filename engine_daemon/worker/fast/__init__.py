"""The fast engine path on CPUs: the same model with its weights laid out for one token at a time."""
