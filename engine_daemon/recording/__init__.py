"""Recordings: frames on disk, their writer and reader, and the columns every reader builds."""
