"""The resident half of llm-inspect: hub, tokens and worker processes, and their client."""

__version__ = "0.1.0"
