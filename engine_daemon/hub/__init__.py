"""The hub process: one log a session, many viewers, supervised children."""
