"""Bytes for people: `512 B`, `1.5 kB`, `270 MB`, `54.6 GB`. Units of 1000 everywhere, on the
screen and in commands: as models, disks and cards are sold, and as the JSON's plain bytes read.

Knows numbers only.
"""

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_WHOLE_FROM: Final = (0.0, 9.95, 9.95, 99.5, 99.5)
"""From so many of a unit on, one decimal more says nothing any more."""


def sized(count: float) -> str:
    """In the unit that leaves one to three digits before the point."""
    unit = _unit(count)
    return f"{_in_unit(count, unit)} {_UNITS[unit]}"


def sized_of(done: float, total: float) -> str:
    """`12/270 MB`: both in the unit of the whole."""
    unit = _unit(total)
    return f"{_in_unit(done, unit)}/{_in_unit(total, unit)} {_UNITS[unit]}"


def _unit(count: float) -> int:
    """The first in which it is written with three digits at most."""
    last = len(_UNITS) - 1
    return next((n for n in range(last) if float(_in_unit(count, n)) < 1000), last)


def _in_unit(count: float, unit: int) -> str:
    amount = count / 1000**unit
    whole = amount == 0 or amount >= _WHOLE_FROM[unit]
    return f"{amount:.{0 if whole else 1}f}"
