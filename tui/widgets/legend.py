"""An entry of a plot's legend, in as many words as there is room for.

Knows signs and words; nothing of what is plotted.
"""

from typing import NamedTuple

from rich.segment import Segment

from tui.theming import Palette
from tui.widgets.plot import DERIVED, DOT


class Entry(NamedTuple):
    """A sign of the plot and what it means: the longest words with figures first, then without,
    then short, then shortest."""

    sign: str
    words: tuple[str, str, str, str]

    def parts(self, form: int, palette: Palette) -> list[Segment]:
        """Two spaces, the sign, the words."""
        if self.sign == DERIVED:
            return [Segment(f"  {self.sign} {self.words[form]}", palette.accent)]
        style = palette.plot if self.sign == DOT else palette.mark
        return [
            Segment(f"  {self.sign} ", style),
            Segment(self.words[form], palette.base),
        ]
