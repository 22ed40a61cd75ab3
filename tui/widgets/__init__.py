"""Widgets that panes are made of; they know no session."""
