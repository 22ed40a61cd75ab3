"""Panes of the main screen; one visible thing a file."""
