"""Tests of `tui.widgets`."""
