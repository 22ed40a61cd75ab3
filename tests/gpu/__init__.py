"""Checks that need a GPU; nothing here is collected by pytest but the run of it on a CPU."""
