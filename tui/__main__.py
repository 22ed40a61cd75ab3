"""`python -P -m tui`: the command `llm-inspect`, where its script is not at hand."""

import sys

from tui.cli import main

sys.exit(main())
