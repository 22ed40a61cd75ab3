"""The resident half of llm-inspect: hub, tokens and worker processes, and their client."""
