"""The viewer: command line and Textual app. Never imports torch."""
