"""Which of the known words somebody meant. Knows words only."""

from collections.abc import Iterable


def edits(a: str, b: str) -> int:
    """Letters to put in, take out or change to make `a` into `b` (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def nearest(word: str, known: Iterable[str], most: int = 2) -> str | None:
    """The known word with the fewest edits to `word`, if `most` of them suffice."""
    lowered = word.lower()
    ranked = sorted(
        (edits(lowered, k.lower()), k) for k in known if abs(len(k) - len(word)) <= most
    )
    return ranked[0][1] if ranked and ranked[0][0] <= most else None


def near(word: str, known: Iterable[str]) -> str | None:
    """The same, if most of the letters are right or only their order is wrong: two edits make
    anything of a short word."""
    close = nearest(word.lstrip("-"), [k.lstrip("-") for k in known])
    if close is None:
        return None
    typed = word.lstrip("-").lower()
    few = 2 * edits(typed, close.lower()) < max(len(typed), len(close))
    return close if few or sorted(typed) == sorted(close.lower()) else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown word: the one it is near to, else all of them."""
    words = list(known)
    close = near(word, words)
    return f"Did you mean {close}?" if close else f"Known: {', '.join(sorted(words))}"
