"""The fault and load matrix as tests, and the command that lists it."""
