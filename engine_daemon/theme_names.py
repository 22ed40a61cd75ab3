"""Which themes a screen can use, by name. Knows where their files lie; nothing of colours."""

import tomllib
from pathlib import Path
from typing import Final

from engine_daemon.paths import read_regular

TERMINAL_THEMES: Final = ("ansi-dark", "ansi-light")
"""The terminal's own palette; they have no file."""


def theme_names(config: Path) -> list[str]:
    """Of the themes in the package, in the repository and in the user's directory, those whose file
    can be read; and the terminal's own."""
    root = Path(__file__).resolve().parents[1]
    names = set(TERMINAL_THEMES)
    for folder in (root / "tui" / "themes", root / "themes", config / "themes"):
        for path in folder.glob("*.toml"):
            try:
                name = tomllib.loads(read_regular(path).decode()).get("name")
            except (OSError, ValueError):
                continue
            if isinstance(name, str):
                names.add(name)
    return sorted(names)
