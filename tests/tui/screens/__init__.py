"""Tests of `tui.screens`."""
