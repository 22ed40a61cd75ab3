"""The command `llm-inspect`. Imports nothing before it can be interrupted without a traceback."""

import sys


def main() -> int:
    """Run the command line of this process; the exit code."""
    try:
        from tui.dispatch import run_line

        return run_line(sys.argv[1:])
    except KeyboardInterrupt:  # while it was still being loaded
        return 130
