"""A horizontal bar of a fraction, in eighths of a cell."""

from typing import Final

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def bar(fraction: float, cells: int) -> str:
    """`cells` cells, filled from the left; anything above zero shows at least a sliver."""
    if cells <= 0:
        return ""
    fraction = min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0
    eighths = round(fraction * cells * 8)
    if fraction > 0 and eighths == 0:
        eighths = 1
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(cells)
