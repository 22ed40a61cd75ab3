"""What may be wrong with an installation, each thing looked at by itself. Imports no torch."""
