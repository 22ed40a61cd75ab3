"""The panes of the main screen. One more pane = its file and one line here."""

from typing import Final

from tui.panes.base import Pane
from tui.panes.cache import CachePane
from tui.panes.cost import CostPane
from tui.panes.next_token import NextTokenPane
from tui.panes.pipeline import PipelinePane
from tui.panes.sequence import SequencePane
from tui.panes.tokens import TokensPane

PANES: Final[dict[str, type[Pane]]] = {
    "pipeline": PipelinePane,
    "sequence": SequencePane,
    "next-token": NextTokenPane,
    "tokens": TokensPane,
    "cost": CostPane,
    "cache": CachePane,
}
"""By id, in the order that `tab` goes through them."""
