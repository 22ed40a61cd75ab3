"""Engine backends; the registry maps a name to its module."""
