"""Rows of words as aligned text. Knows nothing of what they say."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces between."""
    grid = [head, *rows]
    widths = [max(len(row[i]) for row in grid) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in grid
    )
