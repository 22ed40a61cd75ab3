"""The fast engine path on CPUs: the same model, its weights laid out for one token at a time."""
