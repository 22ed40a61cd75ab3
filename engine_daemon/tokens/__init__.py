"""The tokens process: the only place where text becomes ids."""
