"""Text fields that draw what a person pasted without handing control characters to the terminal.

Knows Textual's fields and the character map; nothing of what is typed.
"""

from typing import Final

from rich.text import Text
from textual.widgets import TextArea

from tui.text import show

_UNSAFE: Final = "□"
"""One cell for what has no mark of one cell; not U+FFFD, which says that bytes were lost."""


class _Same(dict[int, str]):
    """Table for `str.translate` that keeps one character for one: columns stay what they are."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        mapped = show(char.encode("utf-8", "surrogatepass"))
        self[code] = mapped if len(mapped) == 1 else "\t" if char == "\t" else _UNSAFE
        return self[code]


_TABLE: Final = _Same()


class SafeTextArea(TextArea):
    """A TextArea that keeps the text as it is and draws a safe character for each of it."""

    def get_line(self, line_index: int) -> Text:
        """The line as it is drawn."""
        line = super().get_line(line_index)
        safe = Text(line.plain.translate(_TABLE), end="", no_wrap=True)
        safe.spans = line.spans
        return safe
