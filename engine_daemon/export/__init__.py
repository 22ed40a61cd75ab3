"""Exporters: a recording or a live session as other formats."""
