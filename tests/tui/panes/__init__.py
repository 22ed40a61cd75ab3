"""Tests of `tui.panes`."""
