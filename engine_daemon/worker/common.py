"""How far two sequences of ids are the same."""

from collections.abc import Sequence


def common(one: Sequence[int], two: Sequence[int]) -> int:
    """Length of the beginning that both share."""
    low, high = 0, min(len(one), len(two))
    if one[:high] == two[:high]:
        return high
    # Slices compare at memory speed: halve instead of walking.
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
