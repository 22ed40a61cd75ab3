"""Conditions (breakpoints and `--until`): text → typed tree → true or false at a step."""
