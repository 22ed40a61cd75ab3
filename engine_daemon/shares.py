"""Can a model of these sizes be shared out to N ranks? Knows names of sizes; no torch, no files."""

from collections.abc import Callable
from typing import Final

SIZES: Final = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "key/value heads",
    "linear_num_key_heads": "key heads of linear attention",
    "linear_num_value_heads": "value heads of linear attention",
    "intermediate_size": "units between the layers",
    "moe_intermediate_size": "units of an expert",
    "shared_expert_intermediate_size": "units of the shared expert",
    "num_experts": "experts",
    "num_local_experts": "experts",
}
"""What every rank gets the same share of, by its name in a text configuration."""
_MOST: Final = 64


def why_not(size_of: Callable[[str], object], ranks: int) -> tuple[str, str] | None:
    """What does not divide by `ranks`, and what would; None when all of it does. `size_of` gives
    what a configuration has under a name."""
    sizes = {what: size_of(name) for name, what in SIZES.items()}
    known = {what: size for what, size in sizes.items() if isinstance(size, int) and size > 0}
    bad = [f"{size} {what}" for what, size in known.items() if size % ranks]
    if not bad:
        return None
    fits = [n for n in range(1, _MOST) if all(size % n == 0 for size in known.values())]
    *rest, last = [str(n) for n in fits]
    words = f"{', '.join(rest)} or {last}" if rest else last
    return f"{', '.join(bad)} do not divide by {ranks} ranks", f"Use --tp {words}"
